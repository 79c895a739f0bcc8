package ngram

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
)

func TestTrace(t *testing.T) {
	cn, p := os.Getenv("CURVE"), 0.0
	var seed uint64
	fmt.Sscan(os.Getenv("SEED"), &seed)
	if cn == "" {
		t.Skip()
	}
	fmt.Sscan(os.Getenv("P"), &p)
	rng := rand.New(rand.NewPCG(seed, 7))
	s, _ := NewWithProposers(DefaultConfig(), nil, &seer{truth: unique, chance: chanceOf([]phase{{4000, p}}), rng: rng, conf: 0.7})
	e := &decoder{cost: curves[cn], noise: 0.05, first: 30, rng: rng}
	n := 0
	e.decision = func(d Decision, pos int) {
		n++
		if n < 400 {
			pt := ""
			if d.Probe {
				pt = "PROBE"
			}
			c := s.shared.cost.Curve()
			fmt.Println(n, pos, len(d.Drafts), d.Width, d.Reason, pt, "ema", s.control.gate.ema, "budget", c.budget, "wait", c.wait, s.control.cands[0].chances[0], s.control.cands[0].chances[1], s.control.cands[0].chances[5])
		}
	}
	e.run(s, unique, 4000)
	st := s.Stats()
	fmt.Printf("%+v\n", st)
}
