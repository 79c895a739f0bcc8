package scheduler

import "math/bits"

const (
	rowClasses = 11 // 1, 2, 4 … 1024 rows
	firstProbe = 4  // passes until an unknown width is tried
	mostProbe  = 512
)

// costs is what passes of a class took, by rows (in powers of two) and width.
type costs struct {
	nanos  [rowClasses][MaxWidth + 1]int64 // 0: unknown
	last   [rowClasses][MaxWidth + 1]uint64
	passes uint64 // that could have had drafts
	probed uint64
	wait   uint64
}

func rowClass(rows int) int { return min(bits.Len(uint(rows-1)), rowClasses-1) }

func (s *Scheduler) cost(e Event) error {
	c := s.class(e.Class)
	if c == nil {
		return ErrUnknown
	}
	if err := firstError(within("rows", e.N, 1, 1<<10), within("width", e.Width, 1, MaxWidth),
		within("nanoseconds", e.Nanos, 1, maxNanos)); err != nil {
		return err
	}
	if c.costs == nil {
		c.costs = &costs{wait: firstProbe}
	}
	cell := &c.costs.nanos[rowClass(e.N)][e.Width]
	if *cell == 0 {
		*cell = e.Nanos
	} else {
		*cell = max(1, *cell+(e.Nanos-*cell)/4)
	}
	c.costs.last[rowClass(e.N)][e.Width] = s.step
	return nil
}

// line is the cost by width for a number of rows. What was not measured lies
// between its measured neighbours; beyond the last one it grows with the width,
// and before the first is the first's. known tells which were measured.
func (c *costs) line(rows int, line *[MaxWidth + 1]int64) (known bool) {
	cells := &c.nanos[rowClass(rows)]
	before := 0
	for w := 1; w <= MaxWidth; w++ {
		if cells[w] == 0 {
			continue
		}
		for v := before + 1; v <= w; v++ {
			line[v] = cells[w]
			if before > 0 {
				line[v] = cells[before] + (cells[w]-cells[before])*int64(v-before)/int64(w-before)
			}
		}
		before = w
	}
	for v := before + 1; before > 0 && v <= MaxWidth; v++ {
		line[v] = cells[before] * int64(v) / int64(before)
	}
	return before > 0
}

// widen decides how many tokens each row of a pass has, at most limit.
func (s *Scheduler) widen(p *Pass, limit int) {
	c := s.class(p.Class)
	limit = min(limit, c.width)
	var gain [MaxWidth + 1]int64 // expected tokens beyond one a row that the i-th drafts give together
	deepest, forced := 0, 0
	for i := range p.Rows {
		q := s.byID[p.Rows[i].ID]
		n := min(q.drafts(), limit-1, q.bank.keys-q.cached-1)
		p.Rows[i].Drafts = max(0, n)
		deepest = max(deepest, n)
		if q.force {
			forced = max(forced, min(n, q.goal))
		}
		for d := 1; d <= n; d++ {
			gain[d] += int64(q.odds[d-1])
		}
	}
	depth := 0
	p.Width = 1
	switch {
	case deepest <= 0:
	case len(p.Rows) == 1:
		q := s.byID[p.Rows[0].ID]
		depth = min(q.goal, deepest)
		if depth > 0 {
			p.Width = max(depth+1, min(q.width, limit))
		}
	default:
		depth, p.Width, p.Probe = c.choose(&gain, len(p.Rows), deepest, forced, limit)
	}
	s.finish(p, depth)
}

// finish cuts drafts to the depth and fills in what follows from the width.
func (s *Scheduler) finish(p *Pass, depth int) {
	c := s.class(p.Class)
	p.Lookahead = depth == 0
	for i := range p.Rows {
		r := &p.Rows[i]
		q := s.byID[r.ID]
		if q.force {
			r.Drafts = min(r.Drafts, max(depth, q.goal))
		} else {
			r.Drafts = min(r.Drafts, depth)
		}
		if r.Drafts > 0 {
			r.Route = RouteVerify
		}
		if q.credit < 2 || q.remaining == 1 || q.total+1 > q.bank.keys {
			p.Lookahead = false
		}
		s.stats.Drafted += uint64(r.Drafts)
	}
	for i := range p.Groups {
		g := &p.Groups[i]
		for _, r := range p.Rows[g.From:g.To] {
			g.Keys = max(g.Keys, r.Length+p.Width)
		}
		g.Keys = min(rounded(g.Keys), g.Slot.Keys+c.pad)
	}
}

// rounded is the length of a view of n keys: of few different lengths, and at
// most a quarter longer beyond the first.
func rounded(n int) int {
	step := 256
	for 4*step < n {
		step *= 2
	}
	return (n + step - 1) / step * step
}

// choose picks the depth that gives the most tokens for the time, and the width
// that is cheapest for it. Depth 0 is among the choices unless forced.
func (c *class) choose(gain *[MaxWidth + 1]int64, rows, deepest, forced, limit int) (depth, width int, probe bool) {
	var line [MaxWidth + 1]int64
	if c.costs == nil || !c.costs.line(rows, &line) {
		return forced, forced + 1, false
	}
	if w := c.costs.probe(gain, rows, deepest, limit); w > forced+1 {
		return min(w-1, deepest), w, true
	}
	var cheapest [MaxWidth + 2]int // the width ≥ i of the least cost
	for w := limit; w >= 1; w-- {
		cheapest[w] = w
		if o := cheapest[w+1]; o != 0 && line[o] < line[w] {
			cheapest[w] = o
		}
	}
	tokens := int64(rows) * million
	best, bestCost := int64(0), int64(1)
	for d := 0; d <= deepest; d++ {
		tokens += gain[d]
		if d < forced {
			continue
		}
		w := d + 1
		if d > 0 {
			w = cheapest[w]
		}
		if better(tokens, line[w], best, bestCost) {
			depth, width, best, bestCost = d, w, tokens, line[w]
		}
	}
	return depth, width, false
}

// better tells whether a/b > c/d, exactly.
func better(a, b, c, d int64) bool {
	h1, l1 := bits.Mul64(uint64(a), uint64(d))
	h2, l2 := bits.Mul64(uint64(c), uint64(b))
	return h1 > h2 || h1 == h2 && l1 > l2
}

// probed widths: how cost grows between them is close to a line.
var probes = [...]int{2, 3, 4, 5, 8, 9, 16, 17, 24, 32}

// probe is the width to try now, 0 for none: one that was not measured if its
// drafts promise a tenth more tokens, else the one measured longest ago. The wait
// between two doubles as long as all are known.
func (c *costs) probe(gain *[MaxWidth + 1]int64, rows, deepest, limit int) int {
	c.passes++
	if c.passes-c.probed < c.wait {
		return 0
	}
	r := rowClass(rows)
	found, unknown := 0, false
	for _, w := range probes {
		if w > limit || w > deepest+1 {
			break
		}
		tokens := int64(0)
		for d := 1; d < w; d++ {
			tokens += gain[d]
		}
		if 10*tokens < int64(rows)*million {
			continue
		}
		if c.nanos[r][w] == 0 {
			found, unknown = w, true
			break
		}
		if found == 0 || c.last[r][w] < c.last[r][found] {
			found = w
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
