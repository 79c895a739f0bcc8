package scheduler

import (
	"math/bits"
	"slices"
)

// offer is a draft that a row of a pass may have. Offers sort by falling odds,
// then by row.
type offer uint64

func newOffer(odds uint32, row int) offer { return offer(million-odds)<<32 | offer(row) }

func (o offer) odds() int64 { return million - int64(o>>32) }
func (o offer) row() int    { return int(o & (1<<32 - 1)) }

// likeliest leaves out offers that are not among the n first ones, for there are
// far more than a pass takes and sorting all of them would be most of a step.
func likeliest(offers []offer, n int) []offer {
	const shift = 32 + 10
	var counts [1 << 10]int
	for _, o := range offers {
		counts[o>>shift]++
	}
	end := offer(0)
	for sum := 0; sum < n; end++ {
		sum += counts[end]
	}
	return slices.DeleteFunc(offers, func(o offer) bool { return o>>shift >= end })
}

// draft decides how many drafts the rows of a pass have, at most so many in all.
func (s *Scheduler) draft(p *Pass, most int) {
	if len(p.Rows) == 1 {
		s.draftAlone(p, most)
	} else {
		s.draftJointly(p, most)
	}
	p.Lookahead = true
	for i := range p.Rows {
		r := &p.Rows[i]
		q := s.byID[r.ID]
		if r.Drafts > 0 {
			r.Route = RouteVerify
		}
		if r.Drafts > 0 || q.credit < 2 || q.remaining == 1 || q.room() < 1 {
			p.Lookahead = false
		}
		p.Tokens += 1 + r.Drafts
		s.stats.Drafted += uint64(r.Drafts)
	}
	if len(p.Rows) == 1 {
		p.Width = max(p.Width, p.Tokens)
	}
}

// draftAlone lets the only row of a pass have what its own speculator chose.
func (s *Scheduler) draftAlone(p *Pass, most int) {
	r := &p.Rows[0]
	q := s.byID[r.ID]
	r.Drafts = min(q.goal, q.drafts(), q.room(), most)
	if r.Drafts > 0 {
		p.Width = min(q.width, q.class.width, 1+q.room(), 1+most)
	}
}

// draftJointly takes the drafts of all rows by their odds. Those of one row fall,
// so that each row's are taken in order.
func (s *Scheduler) draftJointly(p *Pass, most int) {
	s.offers = s.offers[:0]
	forced, gain := 0, int64(0)
	for i := range p.Rows {
		r := &p.Rows[i]
		q := s.byID[r.ID]
		n := min(q.drafts(), q.room())
		if q.force {
			r.Drafts = min(n, q.goal, most-forced)
			forced += r.Drafts
		}
		for d, odds := range q.odds[:n] {
			if d < r.Drafts {
				gain += int64(odds)
			} else if odds > 0 {
				s.offers = append(s.offers, newOffer(odds, i))
			}
		}
	}
	base := len(p.Rows) + forced
	most = min(most-forced, len(s.offers), mostCosts-base)
	c := s.class(p.Class)
	if most <= 0 || c.costs == nil {
		return
	}
	s.offers = likeliest(s.offers, most)
	slices.Sort(s.offers)
	var k int
	k, p.Probe = c.costs.choose(s.offers, len(p.Rows), base, most, gain)
	for _, o := range s.offers[:k] {
		p.Rows[o.row()].Drafts++
	}
}

// choose picks the number of offers that gives the most tokens for the time; none
// is among the choices. The base tokens of the pass before give one a row and gain.
func (c *costs) choose(offers []offer, rows, base, most int, gain int64) (taken int, probe bool) {
	var line [costCells]int64
	if !c.line(rows, &line) {
		return 0, false
	}
	if k := c.probe(offers, rows, base, most); k > 0 {
		return k, true
	}
	tokens := int64(rows)*million + gain
	best, bestCost := tokens, line[costCell(base)]
	for k := 1; k <= most; k++ {
		tokens += offers[k-1].odds()
		if cost := line[costCell(base+k)]; better(tokens, cost, best, bestCost) {
			taken, best, bestCost = k, tokens, cost
		}
	}
	return taken, false
}

// better tells whether a/b > c/d, exactly.
func better(a, b, c, d int64) bool {
	h1, l1 := bits.Mul64(uint64(a), uint64(d))
	h2, l2 := bits.Mul64(uint64(c), uint64(b))
	return h1 > h2 || h1 == h2 && l1 > l2
}
