package ngram

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestCalibrationLearnsWhatConfidenceIsWorth: a proposer that always says 0.9 and is right in 6 of 10.
func TestCalibrationLearnsWhatConfidenceIsWorth(t *testing.T) {
	var b bank
	var recent counters
	rng := rand.New(rand.NewPCG(1, 1))
	drafts := []Draft{{1, 0.9}, {2, 0.9}, {3, 0.4}}
	var chances [3]float32
	b.calibrate(&recent, drafts, chances[:])
	if chances[0] != 0.9 {
		t.Errorf("before anything is known: %v", chances[0])
	}
	var sums [3]float64
	const rounds, counted = 700, 500
	for round := range rounds {
		accepted := 0
		if rng.Float64() < 0.6 {
			accepted = 1
			if rng.Float64() < 0.8 {
				accepted = 2
			}
		}
		b.learn(&recent, drafts[:min(accepted+1, 2)], accepted)
		if round >= rounds-counted {
			b.calibrate(&recent, drafts, chances[:])
			for i, c := range chances {
				sums[i] += float64(c) / counted
			}
		}
	}
	for i, want := range []float64{0.6, 0.8, 0.4} { // by place; the third level was never judged
		if math.Abs(sums[i]-want) > 0.03 {
			t.Errorf("place %d: %v, want about %v", i, sums[i], want)
		}
	}
}

// TestCalibrationIsNotBiased judges drafts as decoding does, each up to its first rejection.
func TestCalibrationIsNotBiased(t *testing.T) {
	var b bank
	var recent counters
	rng := rand.New(rand.NewPCG(2, 2))
	drafts := make([]Draft, MaxDraft)
	for i := range drafts {
		drafts[i].P = 0.7
	}
	chances := make([]float32, MaxDraft)
	sum, n := 0.0, 0
	for round := range 3000 {
		accepted := 0
		for accepted < MaxDraft && rng.Float64() < 0.9 {
			accepted++
		}
		b.learn(&recent, drafts[:min(accepted+1, MaxDraft)], accepted)
		if round > 100 {
			b.calibrate(&recent, drafts, chances)
			sum += float64(chances[0]+chances[2]+chances[10]) / 3
			n++
		}
	}
	if mean := sum / float64(n); math.Abs(mean-0.9) > 0.012 {
		t.Errorf("the mean estimate is %.4f, want 0.9", mean)
	}
}

// TestCalibrationFollowsThePhase: after a long run of accepted drafts, five rejections must count.
func TestCalibrationFollowsThePhase(t *testing.T) {
	var b bank
	var recent counters
	drafts := []Draft{{1, 0.9}}
	var chance [1]float32
	for range 300 {
		b.learn(&recent, drafts, 1)
	}
	b.calibrate(&recent, drafts, chance[:])
	if chance[0] < 0.98 || chance[0] > highestChance {
		t.Errorf("all accepted: %v", chance[0])
	}
	for range 5 {
		b.learn(&recent, drafts, 0)
	}
	b.calibrate(&recent, drafts, chance[:])
	if chance[0] > 0.8 {
		t.Errorf("after five rejections: %v", chance[0])
	}
	var other counters // another request of the model is told by the long run
	b.calibrate(&other, drafts, chance[:])
	if chance[0] < 0.9 {
		t.Errorf("in another request: %v", chance[0])
	}
}

func TestLevelsCoverEverything(t *testing.T) {
	for _, p := range []float32{0, 0.1, 0.5, 0.999, 1, 2, float32(math.NaN())} {
		if l := level(p); l < 0 || l >= len(levels) {
			t.Errorf("level of %v: %d", p, l)
		}
	}
	for i := range MaxDraft {
		if pl := place(i); pl < 0 || pl >= places {
			t.Errorf("place of %d: %d", i, pl)
		}
	}
}
