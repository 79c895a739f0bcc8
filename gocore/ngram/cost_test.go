package ngram

import (
	"math"
	"testing"
)

func model(points map[int]float64) *CostModel {
	m := newCostModel(DefaultConfig())
	for range 3 {
		for w := 1; w <= MaxWidth; w++ {
			if c, ok := points[w]; ok {
				m.Record(w, c)
			}
		}
	}
	return m
}

func TestCostIgnoresOutliers(t *testing.T) {
	m := newCostModel(DefaultConfig())
	m.Record(8, 54) // the first pass compiles
	m.Record(8, 0.016)
	if c := m.Curve(); c.predict(8) != 0.016 {
		t.Errorf("after a first pass of 54 s: %v", c.predict(8))
	}
	for i := range 50 {
		v := 0.015
		if i%10 == 9 {
			v = 3
		}
		m.Record(8, v)
	}
	if c := m.Curve(); math.Abs(c.seconds[8]-0.015) > 1e-6 {
		t.Errorf("with outliers now and then: %v", c.seconds[8])
	}
	for range 20 {
		m.Record(8, 0.03)
	}
	if c := m.Curve(); math.Abs(c.seconds[8]-0.03) > 1e-3 {
		t.Errorf("a lasting change must be followed: %v", c.seconds[8])
	}
}

func TestCostIgnoresWhatMeasuresNothing(t *testing.T) {
	m := newCostModel(DefaultConfig())
	for _, v := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		m.Record(1, v)
		m.recordPartial(4, v, 1, m.own)
		m.recordPlain(v, true, m.own)
	}
	m.Record(0, 1)
	m.Record(MaxWidth+1, 1)
	m.recordPartial(0, 1, 1, m.own)
	if c := m.Curve(); len(c.Points()) != 0 || m.steps != 0 {
		t.Errorf("%v", c.Points())
	}
}

// TestPredictOnSteps uses the curve of CUDA's 4-bit kernels, where eight rows cost less than five.
func TestPredictOnSteps(t *testing.T) {
	m := model(map[int]float64{1: 9.8, 2: 10.7, 4: 15.3, 8: 15.1, 16: 16.8})
	c := m.Curve()
	for w, want := range map[int]float64{
		2: 10.7, 8: 15.1, // measured
		3: 13, 6: 15.2, 12: 15.95, // on the line between neighbours
		24: 16.8 + 8*1.7/8, // the last slope goes on
		32: 16.8 + 16*1.7/8,
		33: 0, // beyond the next power of two: no guess
	} {
		if got := c.predict(w); math.Abs(got-want) > 1e-9 {
			t.Errorf("width %d: %v, want %v", w, got, want)
		}
	}
	c = model(map[int]float64{1: 9.8, 2: 10.7, 4: 15.3, 5: 18, 6: 20.3}).Curve()
	if got := c.optimistic(8); got > 15.1 {
		t.Errorf("a plausible cost of 8 rows is %v; a cheaper kernel would not be found", got)
	}
}

func TestSteepCurvesAreNotExplored(t *testing.T) {
	c := model(map[int]float64{1: 100, 2: 200}).Curve()
	if got := c.optimistic(4); got < 400-1e-9 {
		t.Errorf("4 rows might cost %v where 2 cost twice 1", got)
	}
	if got := c.optimistic(8); got != 0 {
		t.Errorf("8 rows are out of reach before 4, got %v", got)
	}
}

func TestFirstPassesAreDoubted(t *testing.T) {
	m := model(map[int]float64{1: 10, 2: 10.5})
	m.Record(4, 30)
	if c := m.Curve(); c.known(4) {
		t.Error("three times the expected cost, and believed at once")
	}
	m.Record(4, 31)
	if c := m.Curve(); !c.known(4) || c.seconds[4] != 30 {
		t.Error("not believed when confirmed")
	}
	m.Record(3, 11)
	if c := m.Curve(); !c.known(3) {
		t.Error("a plausible cost is not believed")
	}
}

func TestPipelineSeparatesPlainSteps(t *testing.T) {
	m := newCostModel(DefaultConfig())
	m.recordPlain(0.01, false, m.own)
	m.pipeline()
	m.recordPlain(0.01, false, m.own)
	for range 3 {
		m.recordPlain(0.005, true, m.own)
	}
	c := m.Curve()
	if c.seconds[1] != 0.005 || c.sync != 0.01 || c.base != 0.01 {
		t.Errorf("queued %v, alone %v, base %v", c.seconds[1], c.sync, c.base)
	}
	if got := c.predict(2); math.Abs(got-0.015) > 1e-12 {
		t.Errorf("two rows: %v", got)
	}
}

func TestPartialAcceptancesArePricedApart(t *testing.T) {
	m := newCostModel(DefaultConfig())
	for range 3 {
		m.Record(1, 10)
		m.Record(4, 12)
	}
	for range 10 {
		m.recordPartial(4, 20, 1, m.own)
		m.recordPartial(8, 21, 1, m.own) // never accepted whole
	}
	c := m.Curve()
	if math.Abs(c.partial-8) > 1e-9 || c.seconds[4] != 12 {
		t.Errorf("the price is %v, width 4 costs %v", c.partial, c.seconds[4])
	}
	if math.Abs(c.seconds[8]-13) > 2.1 {
		t.Errorf("width 8 costs %v, want about 13", c.seconds[8])
	}
}

// TestProbesBackOff counts probes of a known width that never changes: they come at steps 4, 8, 16 … apart, at most 512.
func TestProbesBackOff(t *testing.T) {
	m := model(map[int]float64{1: 1, 2: 2})
	m.probed = m.steps
	var gaps []int
	last := m.steps
	for range 6000 {
		m.Record(1, 1)
		if m.claim(0, false, m.own) {
			gaps = append(gaps, m.steps-last)
			last = m.steps
		}
	}
	want := []int{4, 8, 16, 32, 64, 128, 256, 512, 512}
	for i, w := range want {
		if i >= len(gaps) || gaps[i] != w {
			t.Fatalf("gaps %v, want %v …", gaps, want)
		}
	}
}

func TestProbesKeepToTheirBudget(t *testing.T) {
	cfg := DefaultConfig()
	m := newCostModel(cfg)
	m.Record(1, 1)
	m.Record(1, 1)
	lost := 0.0
	const steps = 5000
	for range steps {
		for m.claim(0.7, true, m.own) {
			lost += 0.7
		}
		m.Record(1, 1)
	}
	if most := 3 + cfg.ProbeShare*steps + 0.1; lost > most || lost < most-1 {
		t.Errorf("probes lost %v, granted are %v", lost, most)
	}
}

func TestRecheckKeepsItsDistance(t *testing.T) {
	m := model(map[int]float64{1: 1, 8: 1})
	if m.recheck(m.own) {
		t.Error("plain steps were timed just now")
	}
	rechecks := 0
	for range 3 * 512 { // plain steps are never timed again
		m.Record(8, 1)
		if m.recheck(m.own) {
			rechecks++
		}
	}
	if rechecks != 3 {
		t.Errorf("%d rechecks in 1536 steps, want 3", rechecks)
	}
}
