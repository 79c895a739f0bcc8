package ngram

import (
	"fmt"
	"math"
)

const (
	// MaxDraft is the most draft tokens a step can verify.
	MaxDraft = 32
	// MaxWidth is the most rows of a verifying forward pass: the token before the drafts, and the drafts.
	MaxWidth = MaxDraft + 1

	plainDraft = 4        // MaxDraftTokens 0 without Adaptive
	minBytes   = 64 << 10 // below this not even the smallest tables fit
)

// Config sets a speculator up. Start from DefaultConfig; the zero value is not valid.
type Config struct {
	// MaxDraftTokens is the most draft tokens a step verifies, 0 to 32. 0 leaves the choice to the controller
	// (up to 32), or means 4 when Adaptive is false.
	MaxDraftTokens int `json:"max_draft_tokens"`
	// MinSupport is how often a continuation must have been seen before it is drafted, at least 1. For the suffix
	// matchers 16 matched tokens count as one sighting more.
	MinSupport int `json:"min_support"`
	// EMADecay is τ in e ← (1−τ)·e + τ·share, in (0, 1]. The share is accepted/drafted; in adaptive mode it is the
	// ratio of what plain decoding would have taken for the committed tokens to the seconds that the step took, times
	// 0.625: 0.5 is a fifth below break-even.
	EMADecay float64 `json:"ema_decay"`
	// EMAThreshold pauses drafting while e is below it, in [0, 1]. 0 never pauses.
	EMAThreshold float64 `json:"ema_threshold"`
	// PauseSteps is how many plain steps a pause lasts before one draft probes again, at least 1.
	PauseSteps int `json:"pause_steps"`
	// MaxPauseSteps bounds the pause in adaptive mode, where it doubles after each failed probe.
	MaxPauseSteps int `json:"max_pause_steps"`
	// Adaptive chooses the depth by measured cost and uses the suffix matchers. False is the plain specification:
	// n-gram tables and the EMA gate, MaxDraftTokens at every step.
	Adaptive bool `json:"adaptive"`
	// Paid says that proposing takes time, as a draft model does: nobody is asked but for drafts that will be verified,
	// MaxDraftTokens at every step, and the gate weighs what steps with drafts took, drafting included, against plain
	// ones. It stands in place of Adaptive.
	Paid bool `json:"-"`
	// ProbeSteps is the fewest steps of a model between two probes of a width whose cost is known, at least 1. The
	// curve is the model's, and so is how often the distance has doubled; from where, the request says.
	ProbeSteps int `json:"probe_steps"`
	// MaxProbeSteps is the interval up to which probes back off, at least ProbeSteps; and where drafts always pay, the
	// steps after which a plain one is timed again.
	MaxProbeSteps int `json:"max_probe_steps"`
	// ProbeShare is the share of the request's decoding time that probes may lose, in [0, 1]; what is left of it is the
	// model's. Three plain steps' time is granted beyond it when a model is new.
	ProbeShare float64 `json:"probe_share"`
	// MinGain is how much faster than plain decoding a depth must promise to be before it is used, in [0, 1].
	MinGain float64 `json:"min_gain"`
	// MinConfidence ends a draft where the product of its confidences falls below it, in [0, 1). Not used by the
	// plain specification.
	MinConfidence float64 `json:"min_confidence"`
	// MatchFactor bounds a suffix matcher's draft to that many times the length of the match, at least 1.
	MatchFactor int `json:"match_factor"`
	// MaxBytes bounds the memory of one request's tables and history, at least 64 KiB. They start with 52 KiB and grow
	// with the text by no more than 450 bytes a token (150 in prose, less where it repeats itself), so short requests
	// never come near the bound. While they grow the old ones are held too, half as much again at the most.
	MaxBytes int `json:"max_bytes"`
	// SharedBytes bounds the store of finished requests' texts of a model; 0 keeps none. Texts of one request can
	// show in another's timing (never in its output), so set 0 where requests must not learn of each other: a request
	// with 0 neither reads a store that its model has nor adds to it.
	SharedBytes int `json:"shared_bytes"`
	// RecurrentState says that the model cannot roll back by length: a partial acceptance costs an extra pass.
	RecurrentState bool `json:"recurrent_state"`
	// Cooldown is how many plain steps follow a partial acceptance, at least 0. ForRecurrent takes 0 for 4.
	Cooldown int `json:"cooldown"`
	// RecomputeCost is the extra pass after a partial acceptance in plain steps, until it has been measured. Only
	// used with RecurrentState.
	RecomputeCost float64 `json:"recompute_cost"`
}

// DefaultConfig is adaptive speculation as used when nothing else is asked for.
func DefaultConfig() Config {
	return Config{
		MinSupport:    1,
		EMADecay:      0.1,
		EMAThreshold:  0.5,
		PauseSteps:    4,
		MaxPauseSteps: 512,
		Adaptive:      true,
		ProbeSteps:    4,
		MaxProbeSteps: 512,
		ProbeShare:    0.005,
		MinGain:       0.02,
		MinConfidence: 0.02,
		MatchFactor:   4,
		MaxBytes:      16 << 20,
		SharedBytes:   32 << 20,
		RecomputeCost: 1,
	}
}

// ForRecurrent returns c changed for a model whose state cannot be rolled back by length: repeated evidence before
// drafting, a cooldown after a partial acceptance, and the extra pass in the expected cost.
func (c Config) ForRecurrent() Config {
	c.RecurrentState = true
	c.MinSupport = max(c.MinSupport, 2)
	if c.Cooldown == 0 {
		c.Cooldown = 4
	}
	return c
}

// Validate returns an error that names the first field out of its range.
func (c Config) Validate() error {
	ints := []struct {
		name        string
		value, low  int
		high        int
		explanation string
	}{
		{"max_draft_tokens", c.MaxDraftTokens, 0, MaxDraft, ""},
		{"min_support", c.MinSupport, 1, math.MaxInt32, ""},
		{"pause_steps", c.PauseSteps, 1, math.MaxInt32, ""},
		{"max_pause_steps", c.MaxPauseSteps, c.PauseSteps, math.MaxInt32, " (pause_steps or more)"},
		{"probe_steps", c.ProbeSteps, 1, math.MaxInt32, ""},
		{"max_probe_steps", c.MaxProbeSteps, c.ProbeSteps, math.MaxInt32, " (probe_steps or more)"},
		{"match_factor", c.MatchFactor, 1, math.MaxInt32, ""},
		{"max_bytes", c.MaxBytes, minBytes, math.MaxInt, ""},
		{"shared_bytes", c.SharedBytes, 0, math.MaxInt, ""},
		{"cooldown", c.Cooldown, 0, math.MaxInt32, ""},
	}
	for _, f := range ints {
		if f.value < f.low || f.value > f.high {
			if f.high >= math.MaxInt32 {
				return fmt.Errorf("ngram config: %s: want %d or more%s, got %d", f.name, f.low, f.explanation, f.value)
			}
			return fmt.Errorf("ngram config: %s: want %d to %d, got %d", f.name, f.low, f.high, f.value)
		}
	}
	floats := []struct {
		name     string
		value    float64
		ok       bool
		expected string
	}{
		{"ema_decay", c.EMADecay, c.EMADecay > 0 && c.EMADecay <= 1, "above 0 and at most 1"},
		{"ema_threshold", c.EMAThreshold, c.EMAThreshold >= 0 && c.EMAThreshold <= 1, "0 to 1"},
		{"probe_share", c.ProbeShare, c.ProbeShare >= 0 && c.ProbeShare <= 1, "0 to 1"},
		{"min_gain", c.MinGain, c.MinGain >= 0 && c.MinGain <= 1, "0 to 1"},
		{"min_confidence", c.MinConfidence, c.MinConfidence >= 0 && c.MinConfidence < 1, "0 or more and below 1"},
		{"recompute_cost", c.RecomputeCost, c.RecomputeCost >= 0 && !math.IsInf(c.RecomputeCost, 0), "0 or more, finite"},
	}
	for _, f := range floats {
		if !f.ok {
			return fmt.Errorf("ngram config: %s: want %s, got %v", f.name, f.expected, f.value)
		}
	}
	return nil
}

// depth is the most draft tokens of a step under this configuration.
func (c Config) depth() int {
	switch {
	case c.MaxDraftTokens > 0:
		return c.MaxDraftTokens
	case c.Adaptive:
		return MaxDraft
	default:
		return plainDraft
	}
}

// widths is the widest forward that padding may reach: kernels like powers of two, so a little beyond the depth.
func (c Config) widths() int {
	w := 1
	for w < c.depth()+1 {
		w *= 2
	}
	return min(w, MaxWidth)
}

// bound is the confidence product that ends a draft.
func (c Config) bound() float32 {
	if !c.Adaptive {
		return 0
	}
	return float32(c.MinConfidence)
}
