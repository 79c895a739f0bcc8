package ngram

import (
	"math"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// TestGateTrace follows the plain specification by numbers computed by hand.
func TestGateTrace(t *testing.T) {
	g := newGate(plainConfig())
	// All of four drafts rejected: e is multiplied by 0.9 each time, from 1.
	for i, want := range []float64{0.9, 0.81, 0.729, 0.6561, 0.59049, 0.531441} {
		g.result(0)
		if !near(g.ema, want) || g.paused || !g.open() {
			t.Fatalf("rejection %d: %+v, want e = %v", i+1, g, want)
		}
	}
	g.result(0)
	if !near(g.ema, 0.4782969) || !g.paused || g.open() {
		t.Fatalf("below one half: %+v", g)
	}
	for i := range 4 {
		if g.open() {
			t.Fatalf("open after %d plain steps", i)
		}
		g.plainStep()
	}
	if !g.open() {
		t.Fatal("no probe after four plain steps")
	}
	// The probe has one of four accepted: 0.9·0.4782969 + 0.1·0.25.
	g.result(0.25)
	if !near(g.ema, 0.45546721) || g.open() || g.stats().PlainSteps != 4 {
		t.Fatalf("a failed probe: %+v", g)
	}
	for range 4 {
		g.plainStep()
	}
	// All accepted: 0.9·0.45546721 + 0.1 = 0.509920489.
	g.result(1)
	if !near(g.ema, 0.509920489) || g.paused || !g.open() {
		t.Fatalf("a good probe: %+v", g)
	}
	// Half accepted: 0.9·0.509920489 + 0.05 = 0.5089284401, still open.
	g.result(0.5)
	if !near(g.ema, 0.5089284401) || g.paused {
		t.Fatalf("half accepted: %+v", g)
	}
}

func TestGatePausesDouble(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxPauseSteps = 20
	g := newGate(cfg)
	for !g.paused {
		g.result(0)
	}
	for i, want := range []int{4, 8, 16, 20, 20} {
		if g.left != want {
			t.Errorf("pause %d lasts %d steps, want %d", i, g.left, want)
		}
		for range want {
			g.plainStep()
		}
		g.result(0)
	}
}

func TestGateShadowsOnlyEndPauses(t *testing.T) {
	g := newGate(DefaultConfig())
	g.shadow(0)
	if g.ema != 1 {
		t.Errorf("a shadow counted while open: %+v", g)
	}
	for !g.paused {
		g.result(0)
	}
	left := g.left
	g.shadow(0)
	if !g.paused || g.left != left {
		t.Errorf("a bad shadow changed the pause: %+v", g)
	}
	for range 20 {
		g.shadow(1)
	}
	if g.paused || !g.open() {
		t.Errorf("good shadows do not end the pause: %+v", g)
	}
}

func TestGateThresholdZeroNeverPauses(t *testing.T) {
	cfg := plainConfig()
	cfg.EMAThreshold = 0
	g := newGate(cfg)
	for range 10_000 {
		g.result(0)
	}
	if !g.open() {
		t.Errorf("%+v", g)
	}
}
