package ngram

// gate is the safety net before everything else: an exponential moving average of how well drafting went lately,
// e ← (1−τ)·e + τ·share, from 1. While e is below the threshold drafting pauses; after some plain steps one draft
// probes.
//
// The plain specification counts accepted/drafted. With depth chosen by cost that share misleads: 32 drafts that cost
// hardly more than a plain step pay though 28 are rejected. There, and where drafting itself takes time, the share is a
// payoff in seconds, see payoff.
type gate struct {
	decay, threshold float64
	first, most      int // steps of a pause: the shortest, the longest

	ema    float64
	paused bool
	pause  int // length of the current pause
	left   int // plain steps left of it
}

func newGate(cfg Config) gate {
	g := gate{decay: cfg.EMADecay, threshold: cfg.EMAThreshold, first: cfg.PauseSteps, most: cfg.PauseSteps, ema: 1}
	if cfg.Adaptive || cfg.Paid {
		g.most = cfg.MaxPauseSteps
	}
	return g
}

// open tells whether drafting is allowed: no pause, or one that is due for its probe.
func (g *gate) open() bool { return !g.paused || g.left == 0 }

// plainStep counts a step without drafts.
func (g *gate) plainStep() {
	if g.paused && g.left > 0 {
		g.left--
	}
}

// result takes the share of a verified draft.
func (g *gate) result(share float64) {
	g.average(share)
	switch {
	case g.ema >= g.threshold:
		g.paused = false
		return
	case g.paused:
		g.pause = min(2*g.pause, g.most)
	default:
		g.paused, g.pause = true, g.first
	}
	g.left = g.pause
}

// shadow takes the share that an unused draft would have had. It may end a pause, never start or lengthen one.
func (g *gate) shadow(share float64) {
	if !g.paused {
		return
	}
	g.average(share)
	if g.ema >= g.threshold {
		g.paused = false
	}
}

func (g *gate) average(share float64) {
	g.ema = min((1-g.decay)*g.ema+g.decay*max(share, 0), 1)
}

// GateStats is the gate's state.
type GateStats struct {
	EMA    float64 `json:"ema"`
	Paused bool    `json:"paused"`
	// PlainSteps is how many plain steps the pause still lasts.
	PlainSteps int `json:"plain_steps"`
}

func (g *gate) stats() GateStats {
	s := GateStats{EMA: g.ema, Paused: g.paused}
	if g.paused {
		s.PlainSteps = g.left
	}
	return s
}
