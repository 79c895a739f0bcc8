package ngram

import (
	"math"
	"math/rand/v2"
)

// A simulated decoder: a known text, a cost for every width, a proposer that is right as often as it is told to be.

// curves in milliseconds.
var curves = map[string]func(w int) float64{
	"flat":    func(w int) float64 { return 10 },
	"linear":  func(w int) float64 { return 100 * float64(w) },
	"gentle":  func(w int) float64 { return 10 + float64(w-1) },
	"stepped": points(map[int]float64{1: 9.8, 2: 10.7, 3: 13.2, 4: 15.3, 5: 18, 6: 20.3, 7: 22.4, 8: 15.1, 12: 16.6, 16: 16.8, 17: 20.3, 32: 21.3, 33: 24}),
}

func points(at map[int]float64) func(w int) float64 {
	return func(w int) float64 {
		if v, ok := at[w]; ok {
			return v
		}
		a, b := w, w
		for ; ; a-- {
			if _, ok := at[a]; ok {
				break
			}
		}
		for ; ; b++ {
			if _, ok := at[b]; ok {
				break
			}
		}
		return at[a] + (at[b]-at[a])*float64(w-a)/float64(b-a)
	}
}

// phase is a stretch of text in which drafts are right with chance p.
type phase struct {
	tokens int
	p      float64
}

// seer proposes the true continuation, each token right with the phase's chance; what follows a wrong one is wrong.
type seer struct {
	truth  func(i int) int32
	chance func(i int) float64
	rng    *rand.Rand
	conf   float32
}

func (s *seer) Name() string           { return "seer" }
func (s *seer) Observe(*History, int)  {}
func (s *seer) Feedback(int, int)      {}
func (s *seer) Truncate(*History, int) {}
func (s *seer) Bytes() int             { return 0 }
func (s *seer) Draft(h *History, dst []Draft) int {
	right := true
	for i := range dst {
		pos := h.Len() + i
		right = right && s.rng.Float64() < s.chance(pos)
		dst[i] = Draft{Token: s.truth(pos), P: s.conf}
		if !right {
			dst[i].Token = -2
		}
	}
	return len(dst)
}

func chanceOf(phases []phase) func(i int) float64 {
	return func(i int) float64 {
		for _, ph := range phases {
			if i < ph.tokens {
				return ph.p
			}
			i -= ph.tokens
		}
		return phases[len(phases)-1].p
	}
}

// expected tokens of a step with k drafts that are right with chance p each.
func expected(p float64, k int) float64 {
	e, whole := 1.0, 1.0
	for range k {
		whole *= p
		e += whole
	}
	return e
}

// bestDepth is the oracle: the best speed (tokens/ms) and the depth and width that reach it.
func bestDepth(cost func(int) float64, plain, p float64, extra float64) (rate float64, depth int) {
	rate = 1 / plain
	for w := 2; w <= MaxWidth; w++ {
		for k := 1; k < w; k++ {
			c := cost(w) + extra*(1-math.Pow(p, float64(k)))
			if r := expected(p, k) / c; r > rate*(1+1e-9) {
				rate, depth = r, k
			}
		}
	}
	return rate, depth
}

// decoder runs a speculator over a text.
type decoder struct {
	cost     func(w int) float64
	sync     float64 // cost of a plain step not queued ahead; 0: plain steps are not pipelined at all
	extra    float64 // of a partial acceptance
	noise    float64
	first    float64 // factor on the first pass of each width
	rng      *rand.Rand
	seen     [MaxWidth + 1]bool
	excess   float64 // milliseconds that first passes took beyond their cost
	decision func(d Decision, pos int)
}

func (e *decoder) pass(w int, base float64) float64 {
	c := base * (1 + e.noise*(2*e.rng.Float64()-1))
	if !e.seen[w] && e.first > 0 {
		e.excess += c * (e.first - 1)
		c *= e.first
	}
	e.seen[w] = true
	return c
}

// run decodes tokens from → to and returns the milliseconds taken.
func (e *decoder) run(s *Speculator, truth func(i int) int32, to int) (ms float64) {
	lookahead := false
	var committed []int32
	for s.Len() < to {
		limit := to - s.Len() - 1
		var d Decision
		var t float64
		switch {
		case lookahead:
			d = s.PlanAhead(limit)
			t = e.pass(1, e.cost(1))
		default:
			d = s.Plan(limit)
			t = e.pass(d.Width, e.cost(d.Width))
			if len(d.Drafts) == 0 && e.sync > 0 {
				t = e.pass(1, e.sync)
			}
		}
		if e.decision != nil {
			e.decision(d, s.Len())
		}
		lookahead = e.sync > 0 && len(d.Drafts) == 0 && d.Lookahead
		accepted := 0
		committed = committed[:0]
		for accepted < len(d.Drafts) && d.Drafts[accepted] == truth(s.Len()+accepted) {
			committed = append(committed, d.Drafts[accepted])
			accepted++
		}
		if accepted < len(d.Drafts) && e.extra > 0 {
			t += e.extra
		}
		committed = append(committed, truth(s.Len()+accepted))
		s.Observe(committed...)
		s.Result(d, accepted, t/1000)
		ms += t
	}
	return ms
}

func unique(i int) int32 { return int32(i) }
