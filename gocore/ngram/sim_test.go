package ngram

import (
	"math/rand/v2"
	"testing"
)

var curveNames = []string{"flat", "linear", "gentle", "stepped"}

var simTexts = []struct {
	name   string
	phases []phase
}{
	{"loop", []phase{{4000, 1}}},
	{"high", []phase{{4000, 0.9}}},
	{"medium", []phase{{4000, 0.7}}},
	{"low", []phase{{4000, 0.4}}},
	{"none", []phase{{4000, 0.1}}},
	{"changing", []phase{{1000, 0.1}, {1000, 1}, {1000, 0.1}, {1000, 0.7}, {1000, 0.1}, {1000, 1}}},
}

const simSeeds = 4

// oracleTime is what a decoder takes that knows costs and chances.
func oracleTime(cost func(int) float64, phases []phase, extra float64) (ms float64, tokens int) {
	for _, ph := range phases {
		rate, _ := bestDepth(cost, cost(1), ph.p, extra)
		ms += float64(ph.tokens) / rate
		tokens += ph.tokens
	}
	return ms, tokens
}

func seerOf(t *testing.T, cfg Config, shared *Shared, phases []phase, rng *rand.Rand) *Speculator {
	t.Helper()
	s, err := NewWithProposers(cfg, shared, &seer{truth: unique, chance: chanceOf(phases), rng: rng, conf: 0.7})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// simulate returns the speeds, over simSeeds runs with a new model each, against the oracle and against plain decoding.
func simulate(t *testing.T, cfg Config, e decoder, phases []phase) (ofOracle, ofPlain float64) {
	t.Helper()
	oracle, tokens := oracleTime(e.cost, phases, e.extra)
	var ms float64
	for seed := range uint64(simSeeds) {
		d := e
		d.rng = rand.New(rand.NewPCG(seed, 7))
		ms += d.run(seerOf(t, cfg, nil, phases, d.rng), unique, tokens) - d.excess
	}
	return simSeeds * oracle / ms, simSeeds * float64(tokens) * e.cost(1) / ms
}

func TestSimulatedSpeed(t *testing.T) {
	for _, curve := range curveNames {
		for _, text := range simTexts {
			t.Run(curve+"/"+text.name, func(t *testing.T) {
				oracle, plain := simulate(t, DefaultConfig(), decoder{cost: curves[curve], noise: 0.05}, text.phases)
				t.Logf("%.3f of the oracle's speed, %.2f of plain decoding's", oracle, plain)
				want := 0.95
				if curve == "linear" {
					want = 0.98
				}
				if oracle < want {
					t.Errorf("%.3f of the oracle's speed, want %.2f", oracle, want)
				}
			})
		}
	}
}

// TestSimulatedFirstPasses lets the first pass of every width take 30 times as long. That time itself is not counted:
// it would come without speculation, or be spent in a warm-up. What it may not do is mislead.
func TestSimulatedFirstPasses(t *testing.T) {
	for _, curve := range curveNames {
		for _, text := range simTexts {
			oracle, _ := simulate(t, DefaultConfig(), decoder{cost: curves[curve], noise: 0.05, first: 30}, text.phases)
			t.Logf("%-8s %-8s %.3f of the oracle's speed", curve, text.name, oracle)
			if oracle < 0.92 {
				t.Errorf("%s, %s: %.3f of the oracle's speed, want 0.92", curve, text.name, oracle)
			}
		}
	}
}

func TestSimulatedDepth(t *testing.T) {
	for _, curve := range curveNames {
		for _, p := range []float64{1, 0.9, 0.7, 0.4, 0.1} {
			cost := curves[curve]
			best, depth := bestDepth(cost, cost(1), p, 0)
			good, all, value := 0, 0, 0.0
			for seed := range uint64(3) {
				rng := rand.New(rand.NewPCG(seed, 3))
				s := seerOf(t, DefaultConfig(), nil, []phase{{1, p}}, rng)
				e := decoder{cost: cost, noise: 0.02, rng: rng}
				e.decision = func(d Decision, pos int) {
					// After warm-up, before the end cuts drafts short, and not where a step only measures.
					if pos < 2000 || pos > 4500-MaxWidth || d.Probe || d.Reason == ReasonRecheck {
						return
					}
					k := len(d.Drafts)
					rate := expected(p, k) / cost(d.Width)
					all++
					value += rate / best
					if k >= depth-1 && k <= depth+1 || rate >= 0.98*best {
						good++
					}
				}
				e.run(s, unique, 4500)
			}
			share, mean := float64(good)/float64(all), value/float64(all)
			t.Logf("%-8s p=%.1f: best depth %2d, chosen within one or within 2 %%: %.3f, expected speed %.3f of the best",
				curve, p, depth, share, mean)
			if share < 0.7 || mean < 0.98 {
				t.Errorf("%s, p=%.1f: %.3f of the choices are good, their value is %.3f", curve, p, share, mean)
			}
		}
	}
}

// TestSimulatedRequestsRemember runs a second request of a model that has learned from a first one of another kind.
func TestSimulatedRequestsRemember(t *testing.T) {
	for _, curve := range curveNames {
		for _, p := range []float64{1, 0.7, 0.1} {
			cost := curves[curve]
			rng := rand.New(rand.NewPCG(1, 9))
			shared := mustShared(t, DefaultConfig())
			e := decoder{cost: cost, noise: 0.05, rng: rng}
			e.run(seerOf(t, DefaultConfig(), shared, []phase{{500, 0.9}, {500, 1}}, rng), unique, 1000)
			var ms float64
			const requests, tokens = 5, 1000
			for range requests {
				ms += e.run(seerOf(t, DefaultConfig(), shared, []phase{{tokens, p}}, rng), unique, tokens)
			}
			oracle, _ := oracleTime(cost, []phase{{requests * tokens, p}}, 0)
			t.Logf("%-8s p=%.1f: %.3f of the oracle's speed", curve, p, oracle/ms)
			if oracle/ms < 0.94 {
				t.Errorf("%s, p=%.1f: %.3f of the oracle's speed, want 0.94", curve, p, oracle/ms)
			}
		}
	}
}

// TestLinearCostsNearlyNothing is the CPU: requests of 64 tokens on one model, the first of which finds out that
// drafting does not pay. Five of them, as the speed suite runs, keep 0.98 of plain speed at any acceptance.
func TestLinearCostsNearlyNothing(t *testing.T) {
	cost := curves["linear"]
	for _, p := range []float64{0, 0.1, 0.5, 0.9, 1} {
		for seed := range uint64(4) {
			rng := rand.New(rand.NewPCG(seed, 11))
			shared := mustShared(t, DefaultConfig())
			e := decoder{cost: cost, noise: 0.05, rng: rng}
			five := 0.0
			drafts := 0
			const requests, tokens = 40, 64
			total := 0.0
			for i := range requests {
				s := seerOf(t, DefaultConfig(), shared, []phase{{tokens, p}}, rng)
				ms := e.run(s, unique, tokens)
				st := s.Stats()
				drafts += st.DraftSteps
				for _, d := range st.ByDepth {
					if d.Depth > 1 && p < 1 {
						t.Errorf("p=%.1f: %d drafts in a step", p, d.Depth)
					}
				}
				total += ms
				if i < 5 {
					five += ms
				}
			}
			// The noise of 320 steps is 0.0016.
			if r := 5 * tokens * cost(1) / five; r < 0.98 {
				t.Errorf("p=%.1f: the first five requests have %.3f of plain speed", p, r)
			}
			if r := requests * tokens * cost(1) / total; r < 0.99 {
				t.Errorf("p=%.1f: all have %.3f of plain speed", p, r)
			}
			if drafts > 20 && p < 1 { // where all are accepted they cost nothing either
				t.Errorf("p=%.1f: %d steps with drafts in %d", p, drafts, requests*tokens)
			}
		}
	}
}

// TestSimulatedPipeline is a GPU: a plain step queued ahead costs 5.4 ms, one that is not 9.8, as wider passes do.
func TestSimulatedPipeline(t *testing.T) {
	for _, curve := range []string{"flat", "stepped"} {
		cost := func(w int) float64 {
			if w == 1 {
				return 5.4
			}
			return curves[curve](w)
		}
		for _, text := range simTexts {
			oracle, plain := simulate(t, DefaultConfig(), decoder{cost: cost, sync: 9.8, noise: 0.05}, text.phases)
			t.Logf("%-8s %-8s %.3f of the oracle's speed, %.2f of plain decoding's", curve, text.name, oracle, plain)
			// The oracle leaves and enters the pipeline at no cost, which no real decoder does.
			if oracle < 0.93 || plain < 0.98 {
				t.Errorf("%s, %s: %.3f of the oracle's speed, %.3f of plain decoding's", curve, text.name, oracle, plain)
			}
		}
	}
}

// TestSimulatedRecurrent prices each partial acceptance at one plain step more.
func TestSimulatedRecurrent(t *testing.T) {
	cfg := DefaultConfig().ForRecurrent()
	cfg.Cooldown = 0 // the oracle knows of none
	for _, curve := range []string{"flat", "linear", "stepped"} {
		cost := curves[curve]
		for _, text := range simTexts[:5] {
			oracle, plain := simulate(t, cfg, decoder{cost: cost, extra: cost(1), noise: 0.05}, text.phases)
			t.Logf("%-8s %-8s %.3f of the oracle's speed, %.2f of plain decoding's", curve, text.name, oracle, plain)
			if oracle < 0.94 || plain < 0.98 {
				t.Errorf("%s, %s: %.3f of the oracle's speed, %.3f of plain decoding's", curve, text.name, oracle, plain)
			}
		}
	}
}

// TestRealProposersSimulated decodes texts with the built-in proposers: one that loops after a while, one that never
// repeats, and one that alternates between new tokens and copies.
func TestRealProposersSimulated(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	loop := func(i int) int32 {
		if i < 300 {
			return int32(1000 + i)
		}
		return int32((i - 300) % 37)
	}
	fresh := make([]int32, 6000)
	for i := range fresh {
		fresh[i] = rng.Int32N(100_000)
	}
	copies := prose(3, 6000)
	for _, tc := range []struct {
		name  string
		truth func(i int) int32
		want  map[string]float64 // of plain speed
	}{
		{"loop", loop, map[string]float64{"flat": 9.5, "linear": 0.98, "gentle": 4.5, "stepped": 7}},
		{"fresh", func(i int) int32 { return fresh[i] }, map[string]float64{"flat": 0.98, "linear": 0.98, "gentle": 0.98, "stepped": 0.98}},
		{"copies", func(i int) int32 { return copies[i] }, map[string]float64{"flat": 1.5, "linear": 0.98, "gentle": 1.2, "stepped": 1.2}},
	} {
		for _, curve := range curveNames {
			cost := curves[curve]
			e := decoder{cost: cost, noise: 0.05, rng: rng}
			s := mustNew(t, DefaultConfig(), nil)
			const tokens = 5000
			r := tokens * cost(1) / e.run(s, tc.truth, tokens)
			t.Logf("%-8s %-8s %.2f of plain speed", curve, tc.name, r)
			if r < tc.want[curve] {
				t.Errorf("%s, %s: %.3f of plain speed, want %.2f", curve, tc.name, r, tc.want[curve])
			}
		}
	}
}
