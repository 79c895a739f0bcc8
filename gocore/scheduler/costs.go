package scheduler

import "math/bits"

const (
	rowClasses = 11 // 1, 2, 4 … 1024 rows
	exactCosts = 64 // passes of so many tokens are told apart
	mostCosts  = 1024
	octave     = 8                         // beyond exactCosts, from one power of two to the next
	costCells  = exactCosts + 1 + 4*octave // 0 … 64, then up to 128, 256, 512, 1024
	firstProbe = 4                         // passes until an unknown number of tokens is tried
	mostProbe  = 512
)

// costs is what passes of a class took, by rows (in powers of two) and tokens.
type costs struct {
	nanos  [rowClasses][costCells]int64 // 0: unknown
	last   [rowClasses][costCells]uint64
	passes uint64 // that could have had drafts
	probed uint64
	wait   uint64
}

func rowClass(rows int) int { return min(bits.Len(uint(rows-1)), rowClasses-1) }

// costCell is where a pass of so many tokens, at most mostCosts, is counted.
func costCell(tokens int) int {
	if tokens <= exactCosts {
		return tokens
	}
	power := bits.Len(uint(tokens-1)) - 1
	step := 1 << power / octave
	return exactCosts + (power-6)*octave + (tokens-1<<power+step-1)/step
}

// cellTokens is the most tokens that a cell counts.
func cellTokens(cell int) int {
	if cell <= exactCosts {
		return cell
	}
	cell -= exactCosts + 1
	power := 6 + cell/octave
	return 1<<power + (cell%octave+1)<<power/octave
}

func (s *Scheduler) cost(e Event) error {
	c := s.class(e.Class)
	if c == nil {
		return ErrUnknown
	}
	if err := firstError(within("rows", e.N, 1, maxRows), within("tokens", e.Tokens, e.N, MaxTokens),
		within("nanoseconds", e.Nanos, 1, maxNanos)); err != nil {
		return err
	}
	if e.Tokens > mostCosts {
		return nil // nothing is chosen there
	}
	if c.costs == nil {
		c.costs = &costs{wait: firstProbe}
	}
	row, at := rowClass(e.N), costCell(e.Tokens)
	cell := &c.costs.nanos[row][at]
	if *cell == 0 {
		*cell = e.Nanos
	} else {
		*cell = max(1, *cell+(e.Nanos-*cell)/4)
	}
	c.costs.last[row][at] = s.step
	return nil
}

// line is the cost by cell for a number of rows. What was not measured lies
// between its measured neighbours; beyond the last one it grows with the tokens,
// and before the first is the first's. known tells whether any was measured.
func (c *costs) line(rows int, line *[costCells]int64) (known bool) {
	cells := &c.nanos[rowClass(rows)]
	before, at := 0, 0 // the last measured cell and its tokens
	for w := 1; w < costCells; w++ {
		if cells[w] == 0 {
			continue
		}
		to := cellTokens(w)
		for v := before + 1; v <= w; v++ {
			line[v] = cells[w]
			if before > 0 {
				line[v] = cells[before] + (cells[w]-cells[before])*int64(cellTokens(v)-at)/int64(to-at)
			}
		}
		before, at = w, to
	}
	for v := before + 1; before > 0 && v < costCells; v++ {
		line[v] = cells[before] * int64(cellTokens(v)) / int64(at)
	}
	return before > 0
}

// probes are the numbers of tokens that are tried: how cost grows between them is
// close to a line, and after some of them it jumps.
var probes = [...]int{2, 3, 4, 5, 6, 8, 9, 12, 16, 17, 24, 32, 33, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024}

// probe is how many offers to take now to learn what so many tokens cost, 0 for
// none: a number that was not measured if its drafts promise a tenth more tokens,
// else the one measured longest ago. The wait between two doubles as long as all
// are known. base is the tokens of the pass before.
func (c *costs) probe(offers []offer, rows, base, most int) int {
	c.passes++
	if c.passes-c.probed < c.wait {
		return 0
	}
	row := rowClass(rows)
	found, oldest, unknown := 0, uint64(0), false
	k, gain := 0, int64(0)
	for _, tokens := range probes {
		if tokens <= base {
			continue
		}
		if tokens > base+most {
			break
		}
		for ; k < tokens-base; k++ {
			gain += offers[k].odds()
		}
		if 10*gain < int64(rows)*million {
			continue
		}
		cell := costCell(tokens)
		if c.nanos[row][cell] == 0 {
			found, unknown = k, true
			break
		}
		if last := c.last[row][cell]; found == 0 || last < oldest {
			found, oldest = k, last
		}
	}
	if found == 0 {
		return 0
	}
	c.probed = c.passes
	if unknown {
		c.wait = firstProbe
	} else {
		c.wait = min(2*c.wait, mostProbe)
	}
	return found
}
