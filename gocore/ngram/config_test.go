package ngram

import (
	"math"
	"strings"
	"testing"
)

func TestValidateNamesTheField(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatalf("the default configuration: %v", err)
	}
	if err := DefaultConfig().ForRecurrent().Validate(); err != nil {
		t.Fatalf("the recurrent configuration: %v", err)
	}
	cases := []struct {
		field  string
		change func(c *Config)
	}{
		{"max_draft_tokens", func(c *Config) { c.MaxDraftTokens = 33 }},
		{"max_draft_tokens", func(c *Config) { c.MaxDraftTokens = -1 }},
		{"min_support", func(c *Config) { c.MinSupport = 0 }},
		{"ema_decay", func(c *Config) { c.EMADecay = 0 }},
		{"ema_decay", func(c *Config) { c.EMADecay = math.NaN() }},
		{"ema_threshold", func(c *Config) { c.EMAThreshold = 1.5 }},
		{"pause_steps", func(c *Config) { c.PauseSteps = 0 }},
		{"max_pause_steps", func(c *Config) { c.MaxPauseSteps = c.PauseSteps - 1 }},
		{"probe_steps", func(c *Config) { c.ProbeSteps = 0 }},
		{"max_probe_steps", func(c *Config) { c.MaxProbeSteps = 1 }},
		{"probe_share", func(c *Config) { c.ProbeShare = -0.1 }},
		{"min_gain", func(c *Config) { c.MinGain = 2 }},
		{"min_confidence", func(c *Config) { c.MinConfidence = 1 }},
		{"match_factor", func(c *Config) { c.MatchFactor = 0 }},
		{"max_bytes", func(c *Config) { c.MaxBytes = 1000 }},
		{"shared_bytes", func(c *Config) { c.SharedBytes = -1 }},
		{"cooldown", func(c *Config) { c.Cooldown = -1 }},
		{"recompute_cost", func(c *Config) { c.RecomputeCost = math.Inf(1) }},
	}
	for _, tc := range cases {
		c := DefaultConfig()
		tc.change(&c)
		err := c.Validate()
		if err == nil || !strings.Contains(err.Error(), tc.field+":") {
			t.Errorf("%s: got error %v", tc.field, err)
		}
		if _, err := New(c, nil); err == nil {
			t.Errorf("%s: New took it", tc.field)
		}
		if _, err := NewShared(c); err == nil {
			t.Errorf("%s: NewShared took it", tc.field)
		}
	}
}

func TestDepthAndWidths(t *testing.T) {
	for _, tc := range []struct {
		adaptive            bool
		most, depth, widest int
	}{
		{true, 0, 32, 33}, {false, 0, 4, 8}, {true, 4, 4, 8}, {true, 7, 7, 8}, {true, 1, 1, 2}, {false, 32, 32, 33},
	} {
		c := Config{Adaptive: tc.adaptive, MaxDraftTokens: tc.most}
		if c.depth() != tc.depth || c.widths() != tc.widest {
			t.Errorf("adaptive %v, %d drafts: depth %d, widths %d", tc.adaptive, tc.most, c.depth(), c.widths())
		}
	}
}

func TestForRecurrentKeepsStricterValues(t *testing.T) {
	c := DefaultConfig()
	c.MinSupport, c.Cooldown = 3, 9
	c = c.ForRecurrent()
	if !c.RecurrentState || c.MinSupport != 3 || c.Cooldown != 9 || c.RecomputeCost != 1 {
		t.Errorf("got %+v", c)
	}
	c = DefaultConfig().ForRecurrent()
	if c.MinSupport != 2 || c.Cooldown == 0 {
		t.Errorf("got %+v", c)
	}
}
