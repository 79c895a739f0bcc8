package ngram

const (
	maxMatch     = 64  // longest suffix compared
	maxOccurring = 32  // earlier occurrences followed
	enoughWhole  = 8   // and no more than these if their matches are as long as can be
	maxHops      = 128 // links walked to find them
)

// keyLengths are the suffix lengths that are indexed, longest first. The long one finds long repeats among many short
// ones; the short one is the least that counts as a match (below it the n-gram tables do).
var keyLengths = [2]int{8, 3}

// suffixIndex finds earlier occurrences of the last tokens of a text. For each key length, positions whose preceding
// tokens hash alike are linked, newest first. It holds no tokens: it is used with the history that it indexes.
type suffixIndex struct {
	levels [2]chain
}

// chain is the index for one key length. Entries are positions modulo 2³²; what a slot holds is a hint that is
// checked, so slots never set (0) and positions no longer held need no marks.
type chain struct {
	heads []uint32 // by hash
	links []uint32 // by position modulo len: the position before with the same hash
}

// occurrence is a position whose preceding length tokens equal the suffix searched for.
type occurrence struct {
	pos, length int
}

// matcher is the scratch space of a search, so that searching allocates nothing.
type matcher struct {
	tail [maxMatch]int32
	occ  [maxOccurring]occurrence
	live [maxOccurring]occurrence // those that agree with the draft so far
	// ahead is what those have at the place considered.
	ahead [maxOccurring]int32
}

// observe indexes the positions from on.
func (x *suffixIndex) observe(h *History, from int) {
	if len(x.levels[0].links) != h.Window() { // the history grew, and all places with it
		for l := range x.levels {
			x.levels[l] = chain{heads: make([]uint32, h.Window()), links: make([]uint32, h.Window())}
		}
		from = h.Start()
	}
	for l, k := range keyLengths {
		c := &x.levels[l]
		for i := max(from, h.Start()+k); i < h.Len(); i++ {
			slot := c.slot(historyHash(h, i, k))
			c.links[i&(len(c.links)-1)] = c.heads[slot]
			c.heads[slot] = uint32(i)
		}
	}
}

// truncate takes back the positions from n on, newest first; called before h is cut.
func (x *suffixIndex) truncate(h *History, n int) {
	if len(x.levels[0].links) != h.Window() {
		return // nothing indexed yet
	}
	if n <= h.Start() { // nothing remains, and what older slots point to cannot be taken back
		for l := range x.levels {
			clear(x.levels[l].heads)
		}
		return
	}
	for l, k := range keyLengths {
		c := &x.levels[l]
		for i := h.Len() - 1; i >= max(n, h.Start()+k); i-- {
			slot := c.slot(historyHash(h, i, k))
			c.heads[slot] = c.links[i&(len(c.links)-1)]
		}
	}
}

func (c *chain) slot(hash uint64) int { return int(hash>>32) & (len(c.heads) - 1) }

// earlier turns a stored position into one before limit, or -1 if it is not held any more.
func earlier(h *History, stored uint32, limit int) int {
	pos := limit - int(uint32(limit)-stored)
	if pos >= limit || pos <= h.start {
		return -1
	}
	return pos
}

// search collects the latest occurrences of the suffix tail in h, newest first, at most maxOccurring: those of the
// longest key length that has any. It returns their number and the longest match.
func (x *suffixIndex) search(h *History, m *matcher, tail []int32) (found, longest int) {
	if len(x.levels[0].links) != h.Window() {
		return 0, 0
	}
	for l, k := range keyLengths {
		if len(tail) < k {
			continue
		}
		c := &x.levels[l]
		pos := earlier(h, c.heads[c.slot(tailHash(tail, k))], h.Len())
		whole := 0
		for hops := 0; pos >= 0 && hops < maxHops && found < maxOccurring && whole < enoughWhole; hops++ {
			if n := matchLength(h, pos, tail); n >= k {
				m.occ[found] = occurrence{pos, n}
				found++
				longest = max(longest, n)
				if n == maxMatch {
					whole++
				}
			}
			pos = earlier(h, c.links[pos&(len(c.links)-1)], pos)
		}
		if found > 0 {
			break
		}
	}
	return found, longest
}

// follow drafts what came after the occurrences: at each token the continuation with most weight among those that
// still agree with the draft, the most recent one of equals. A longer match weighs more, by its square. loop lets an
// occurrence run over the end of the text into the draft itself, which continues a cycle.
func (m *matcher) follow(h *History, found, longest int, dst []Draft, rules followRules) int {
	live := m.live[:0]
	for _, o := range m.occ[:found] {
		if 2*o.length >= longest { // much shorter matches only blur the picture
			live = append(live, o)
		}
	}
	product := float32(1)
	limit := min(len(dst), rules.factor*longest)
	for i := range limit {
		live = m.read(h, live, i, dst, rules.loop)
		v := m.vote(live)
		if v.count == 0 || v.count+v.length/16 < rules.support {
			return i
		}
		// The match, were it to hold up to here, is i tokens longer.
		p := v.weight / v.all * (1 - 2/float32(v.length+i+1))
		if product *= p; product < rules.bound {
			return i
		}
		dst[i] = Draft{Token: v.token, P: p}
		if v.count == len(live) {
			continue
		}
		kept := live[:0]
		for a, o := range live {
			if m.ahead[a] == v.token {
				kept = append(kept, o)
			}
		}
		live = kept
	}
	return limit
}

// read puts the occurrences' tokens at offset i into m.ahead and drops those that have none: at the end of the text,
// or at the border of the next one.
func (m *matcher) read(h *History, live []occurrence, i int, dst []Draft, loop bool) []occurrence {
	kept := live[:0]
	for _, o := range live {
		token := int32(border)
		if pos := o.pos + i; pos < h.n {
			token = h.ring[pos&h.mask]
		} else if loop {
			token = dst[pos-h.n].Token
		}
		if token >= 0 {
			m.ahead[len(kept)] = token
			kept = append(kept, o)
		}
	}
	return kept
}

// ballot is the continuation that won.
type ballot struct {
	token         int32
	count, length int     // occurrences that have it, and the longest match of them
	weight, all   float32 // its weight, and that of all
}

// vote weighs the tokens in m.ahead.
func (m *matcher) vote(live []occurrence) (won ballot) {
	var all float32
	for a, o := range live {
		all += weight(o.length)
		token := m.ahead[a]
		if won.count > 0 && token == won.token {
			continue // counted with the first of its kind
		}
		v := ballot{token: token}
		for b := a; b < len(live); b++ {
			if m.ahead[b] == token {
				v.weight += weight(live[b].length)
				v.count++
				v.length = max(v.length, live[b].length)
			}
		}
		if v.weight > won.weight {
			won = v
		}
	}
	won.all = all
	return won
}

type followRules struct {
	support int
	factor  int
	bound   float32
	loop    bool
}

func weight(length int) float32 { return float32(length * length) }

// matchLength is how many tokens before pos equal the end of tail.
func matchLength(h *History, pos int, tail []int32) int {
	most := min(len(tail), pos-h.start)
	for n := range most {
		if h.ring[(pos-1-n)&h.mask] != tail[len(tail)-1-n] {
			return n
		}
	}
	return most
}

func hashStep(x uint64, t int32) uint64 { return (x + uint64(uint32(t)) + 1) * 0x9e3779b97f4a7c15 }

func hashEnd(x uint64) uint64 { return x ^ x>>29 }

// historyHash hashes the k tokens before position pos.
func historyHash(h *History, pos, k int) uint64 {
	var x uint64
	for i := pos - k; i < pos; i++ {
		x = hashStep(x, h.ring[i&h.mask])
	}
	return hashEnd(x)
}

// tailHash hashes the last k tokens of tail; equal tokens hash as in historyHash.
func tailHash(tail []int32, k int) uint64 {
	var x uint64
	for _, t := range tail[len(tail)-k:] {
		x = hashStep(x, t)
	}
	return hashEnd(x)
}

func (x *suffixIndex) bytes() int {
	n := 0
	for l := range x.levels {
		n += 4 * (len(x.levels[l].heads) + len(x.levels[l].links))
	}
	return n
}
