package ngram

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// scenario is a decoder's run under a configuration; its plans are what a setting must show in.
type scenario struct {
	name string
	base func() Config
	run  func(s *Speculator, e *decoder)
	sync float64 // of the decoder
	cost string
	loss float64 // of a partial acceptance
}

func decode(text []int32) func(*Speculator, *decoder) {
	return func(s *Speculator, e *decoder) {
		s.Observe(text[:len(text)/4]...)
		e.run(s, func(i int) int32 { return text[i] }, len(text))
	}
}

var scenarios = []scenario{
	{name: "prose", base: DefaultConfig, run: decode(prose(5, 3000)), cost: "stepped", sync: 11},
	{name: "gentle", base: DefaultConfig, run: decode(prose(6, 3000)), cost: "gentle"},
	{name: "linear", base: DefaultConfig, run: decode(prose(7, 1500)), cost: "linear"},
	{name: "cycle", base: DefaultConfig, run: decode(cycle(9, 6000)), cost: "stepped"},
	{name: "far", base: DefaultConfig, run: decode(append(noise(1, 4000), noise(1, 800)...)), cost: "gentle"},
	{name: "recurrent", base: func() Config { return DefaultConfig().ForRecurrent() }, run: decode(prose(8, 3000)), cost: "gentle", loss: 12},
	{name: "plain", base: func() Config { c := DefaultConfig(); c.Adaptive = false; return c }, run: decode(prose(9, 2000)), cost: "gentle"},
}

// plans runs the scenario with the model's own settings, as an engine makes it, and returns what was planned.
func (x *scenario) plans(t *testing.T, change func(*Config)) string {
	t.Helper()
	cfg := x.base()
	change(&cfg)
	shared := mustShared(t, DefaultConfig())
	var trace strings.Builder
	for range 2 { // the second finds the text of the first in the store
		e := &decoder{cost: curves[x.cost], sync: x.sync, extra: x.loss, noise: 0.05, rng: rand.New(rand.NewPCG(4, 4))}
		e.decision = func(d Decision, pos int) {
			fmt.Fprintln(&trace, pos, d.Drafts, d.Width, d.Reason, d.Proposer, d.Probe, d.Lookahead)
		}
		s := mustNew(t, cfg, shared)
		x.run(s, e)
		s.Finish()
	}
	return trace.String()
}

// TestEverySettingChangesPlans: none is there for show. The settings are a request's; the model was loaded with the
// defaults.
func TestEverySettingChangesPlans(t *testing.T) {
	changes := map[string]func(c *Config){
		"max_draft_tokens": func(c *Config) { c.MaxDraftTokens = 2 },
		"min_support":      func(c *Config) { c.MinSupport = 4 },
		"ema_decay":        func(c *Config) { c.EMADecay = 0.5 },
		"ema_threshold":    func(c *Config) { c.EMAThreshold = 0.9 },
		"pause_steps":      func(c *Config) { c.PauseSteps = 50 },
		"max_pause_steps":  func(c *Config) { c.PauseSteps, c.MaxPauseSteps, c.EMAThreshold = 4, 5, 0.95 },
		"adaptive":         func(c *Config) { c.Adaptive = !c.Adaptive },
		"probe_steps":      func(c *Config) { c.ProbeSteps = 200 },
		"max_probe_steps":  func(c *Config) { c.MaxProbeSteps = 8 },
		"probe_share":      func(c *Config) { c.ProbeShare = 0.5 },
		"min_gain":         func(c *Config) { c.MinGain = 0.8 },
		"min_confidence":   func(c *Config) { c.MinConfidence = 0.6 },
		"match_factor":     func(c *Config) { c.MatchFactor = 1 },
		"max_bytes":        func(c *Config) { c.MaxBytes = 64 << 10 },
		"shared_bytes":     func(c *Config) { c.SharedBytes = 0 },
		"recurrent_state":  func(c *Config) { c.RecurrentState = !c.RecurrentState },
		"cooldown":         func(c *Config) { c.Cooldown = 9 },
		"recompute_cost":   func(c *Config) { c.RecomputeCost = 30 },
	}
	// What a setting is compared with, where others had to be changed to bring it to bear.
	against := map[string]func(c *Config){
		"max_pause_steps": func(c *Config) { c.EMAThreshold = 0.95 },
	}
	nothing := func(*Config) {}
	fields := reflect.TypeFor[Config]()
	for i := range fields.NumField() {
		name := fields.Field(i).Tag.Get("json")
		if name == "-" {
			continue
		}
		change, ok := changes[name]
		if !ok {
			t.Errorf("%s: no change is tried", name)
			continue
		}
		before := against[name]
		if before == nil {
			before = nothing
		}
		shown := false
		for j := range scenarios {
			x := &scenarios[j]
			if shown = x.plans(t, before) != x.plans(t, change); shown {
				break
			}
		}
		if !shown {
			t.Errorf("%s changes no plan", name)
		}
	}
	if x := &scenarios[0]; x.plans(t, nothing) != x.plans(t, nothing) {
		t.Error("equal settings, different plans: the test shows nothing")
	}
}

// TestProbesAreTheRequests: the intervals and the share of the request that asks hold, whatever the model was made with.
func TestProbesAreTheRequests(t *testing.T) {
	m := model(map[int]float64{1: 1, 2: 2})
	m.probed = m.steps
	eager, patient := probing{1, 2, 0}, probing{100, 400, 0.5}
	gaps := func(p probing, n int) (all []int) {
		for last := m.steps; len(all) < n; {
			m.record(1, 1, p)
			if m.claim(0, false, p) {
				all = append(all, m.steps-last)
				last = m.steps
			}
		}
		return all
	}
	if got := gaps(eager, 4); !reflect.DeepEqual(got, []int{1, 2, 2, 2}) {
		t.Errorf("eager: %v", got)
	}
	// The model has doubled once; more than its own bound the other cannot have earned.
	if got := gaps(patient, 3); !reflect.DeepEqual(got, []int{200, 400, 400}) {
		t.Errorf("patient: %v", got)
	}
	before := m.budget
	m.record(1, 1, eager)
	if m.budget != before {
		t.Error("a share of 0 adds to the budget")
	}
	m.record(1, 1, patient)
	if got := m.budget - before; !near(got, 0.5) {
		t.Errorf("a share of 0.5 adds %v of a second", got)
	}
}

// TestFreePartialAcceptancesAreFree: a price that was measured as nothing is not taken for an unknown one.
func TestFreePartialAcceptancesAreFree(t *testing.T) {
	cfg := DefaultConfig().ForRecurrent()
	cfg.RecomputeCost, cfg.Cooldown, cfg.MinSupport = 50, 1, 1
	c := newController(cfg, newCostModel(cfg), []*bank{{}})
	p := cfg.probing()
	for range 3 {
		c.cost.Record(1, 0.01)
		c.cost.Record(4, 0.011)
	}
	h := NewHistory(1024)
	offer := func() verdict {
		c.gather(h, []Proposer{&seer{truth: unique, chance: func(int) float64 { return 1 }, rng: rand.New(rand.NewPCG(1, 1)), conf: 0.8}}, 3)
		return c.decide(false)
	}
	if v := offer(); v.depth != 0 || c.choose.extra != 0.5 {
		t.Errorf("at the price that was set, 50 plain steps: depth %d, price %v", v.depth, c.choose.extra)
	}
	if st := c.cost.stats(); st.PartialKnown {
		t.Error("a price is known before any was measured")
	}
	for range 3 {
		c.cost.recordPartial(4, 0.011, cfg.RecomputeCost, p) // no more than an acceptance of all
	}
	if v := offer(); v.depth == 0 || c.choose.extra != 0 {
		t.Errorf("measured as nothing: depth %d, price %v, %s", v.depth, c.choose.extra, v.reason)
	}
	if st := c.cost.stats(); !st.PartialKnown || st.Partial != 0 {
		t.Errorf("told as %+v", st)
	}
}

// A price that is set to nothing stays nothing, too.
func TestForRecurrentTakesNoPriceForUnset(t *testing.T) {
	c := DefaultConfig()
	c.RecomputeCost = 0
	if got := c.ForRecurrent().RecomputeCost; got != 0 {
		t.Errorf("got %v", got)
	}
}

// TestPythonHasTheseDefaults: NgramConfig() promises what ngram=True does.
func TestPythonHasTheseDefaults(t *testing.T) {
	source, err := os.ReadFile("../../python/axlm/ngram.py")
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]reflect.Value{}
	value := reflect.ValueOf(DefaultConfig())
	for i := range value.NumField() {
		ours[value.Type().Field(i).Tag.Get("json")] = value.Field(i)
	}
	settings := regexp.MustCompile(`(?m)^    (\w+): (?:int|float|bool) = (.+)$`).FindAllStringSubmatch(string(source), -1)
	if len(settings) < 10 {
		t.Fatalf("found %v", settings)
	}
	for _, x := range settings {
		want, ok := ours[x[1]]
		if !ok {
			t.Errorf("%s is no setting", x[1])
			continue
		}
		text := x[2]
		var got any
		if base, by, shifted := strings.Cut(text, " << "); shifted {
			a, _ := strconv.Atoi(base)
			b, _ := strconv.Atoi(by)
			got = a << b
		} else if want.Kind() == reflect.Bool {
			got = text == "True"
		} else if want.Kind() == reflect.Int {
			got, _ = strconv.Atoi(text)
		} else {
			got, _ = strconv.ParseFloat(text, 64)
		}
		if got != want.Interface() {
			t.Errorf("%s: %v in Python, %v here", x[1], got, want.Interface())
		}
	}
}
