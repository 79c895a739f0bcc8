package ngram

// Reason says why a step has no drafts.
type Reason string

// Reasons for steps without drafts.
const (
	ReasonNone      Reason = ""              // there are drafts
	ReasonLimit     Reason = "limit"         // the caller allowed none
	ReasonNoMatch   Reason = "no_match"      // nothing to propose
	ReasonPaused    Reason = "gate_paused"   // the moving average is below the threshold
	ReasonNotWorth  Reason = "not_worth"     // no depth promises more than plain decoding
	ReasonCooldown  Reason = "cooldown"      // after a partial acceptance
	ReasonWarmingUp Reason = "warming_up"    // plain steps have not been timed yet
	ReasonRecheck   Reason = "recheck_plain" // plain steps have not been timed for long
	ReasonLookahead Reason = "lookahead"     // a plain step was queued already
)

var reasons = [...]Reason{ReasonLimit, ReasonNoMatch, ReasonPaused, ReasonNotWorth, ReasonCooldown, ReasonWarmingUp,
	ReasonRecheck, ReasonLookahead}

const runAlpha = 0.2 // weight of the latest run of drafting steps in their mean length

// controller chooses how many of whose drafts to verify.
type controller struct {
	cfg    Config
	cost   *CostModel
	gate   gate
	choose chooser
	cands  []candidate
	banks  []*bank    // by proposer, of the model
	recent []counters // by proposer, of the request

	run      float64 // mean number of drafting steps in a row
	drafting int     // drafting steps in the present row
	cooldown int     // plain steps still to come
	pricing  pricing // with Config.Paid
}

func newController(cfg Config, cost *CostModel, banks []*bank) *controller {
	return &controller{
		cfg: cfg, cost: cost, gate: newGate(cfg), choose: chooser{widths: cfg.widths()},
		cands: make([]candidate, len(banks)), banks: banks, recent: make([]counters, len(banks)), run: 2,
	}
}

// gather asks every proposer; it returns the number of those that propose anything.
func (c *controller) gather(h *History, proposers []Proposer, limit int) int {
	some := 0
	for i, p := range proposers {
		cand := &c.cands[i]
		cand.n = min(max(p.Draft(h, cand.drafts[:limit]), 0), limit)
		for j := range cand.drafts[:cand.n] {
			if d := &cand.drafts[j]; !(d.P >= 0 && d.P <= 1) { // NaN too
				d.P = 0
			}
		}
		if cand.n > 0 {
			some++
			c.banks[i].calibrate(&c.recent[i], cand.drafts[:cand.n], cand.chances[:cand.n])
		}
		cand.sum()
	}
	return some
}

// verdict is the controller's answer: an option (depth 0: none), or the reason against.
type verdict struct {
	option
	reason Reason
	probe  bool
	shadow option // what would be drafted if it paid or were allowed; depth 0: nothing is known of its cost
}

// decide weighs the gathered candidates. ahead says that a plain step is in flight anyway: then nothing is claimed,
// and drafting at the next step must also make up for leaving the pipeline.
func (c *controller) decide(ahead bool) verdict {
	curve := &c.choose.curve
	probing := c.cfg.probing()
	c.cost.read(curve, probing)
	plain := curve.seconds[1]
	if curve.samples[1] < plainNeeded {
		return verdict{reason: ReasonWarmingUp}
	}
	c.choose.extra = 0
	if c.cfg.RecurrentState {
		c.choose.extra = curve.partial
		if !curve.priced {
			c.choose.extra = c.cfg.RecomputeCost * plain
		}
	}
	timed, untried := c.choose.best(c.cands)
	v := verdict{shadow: timed}
	if !c.gate.open() {
		v.reason = ReasonPaused
		return v
	}
	floor := (1 + c.cfg.MinGain) / plain
	pick := timed
	if pick.rate() <= floor {
		pick = option{}
	}
	if untried.rate() > untriedGain*max(timed.rate(), floor) {
		pick, v.probe = untried, true
	}
	if pick.depth > 0 && !ahead && c.cost.recheck(probing) {
		v.reason = ReasonRecheck
		return v
	}
	if !v.probe {
		p := c.choose.probe(c.cands, max(pick.rate(), floor))
		// What one slow pass was taken for is not what another is expected to cost.
		regret := max(min(p.seconds, float64(p.width)*plain)-p.tokens/max(pick.rate(), 1/plain), 0)
		if p.depth > 0 && regret <= curve.budget &&
			(ahead || c.cost.claim(regret, curve.samples[p.width] < 2, probing)) {
			pick, v.probe = p, true
		}
	}
	if ahead && pick.depth > 0 && !v.probe {
		if c.gainAfter(&pick, plain)*c.run < curve.sync-plain {
			pick = option{}
		}
	}
	v.option = pick
	if pick.depth == 0 {
		v.reason = ReasonNotWorth
	}
	return v
}

// gainAfter is what drafting gains over plain decoding if it begins after a step in flight. That step gives the draft's
// first token with its chance, and then the rest is left to verify; if not, there is nothing to draft.
func (c *controller) gainAfter(o *option, plain float64) float64 {
	return (o.tokens-1)*plain - float64(c.cands[o.source].chances[0])*o.seconds
}

// payoff is the gate's share of a step: what plain decoding would have taken for the tokens, over what the step took,
// scaled so that the usual threshold of 0.5 lies a fifth below break-even. At break-even itself chance alone would
// pause what pays a little.
func (c *controller) payoff(committed int, seconds float64) (share float64, ok bool) {
	plain := c.choose.curve.seconds[1]
	if !usable(seconds) || plain == 0 {
		return 0, false
	}
	return 0.5 / 0.8 * float64(committed) * plain / seconds, true
}

// plainStep books a step without drafts.
func (c *controller) plainStep() {
	c.gate.plainStep()
	c.cooldown = max(c.cooldown-1, 0)
	c.pricing.plainStep()
	if c.drafting > 0 {
		c.run += runAlpha * (float64(c.drafting) - c.run)
		c.drafting = 0
	}
}

// draftStep books a verified draft for the gate and what follows it. seconds and probe as in Speculator.Result.
func (c *controller) draftStep(drafted, accepted int, seconds float64, probe bool) {
	c.drafting++
	c.pricing.drafted++
	if accepted < drafted {
		c.cooldown = c.cfg.Cooldown
	}
	if !c.cfg.Adaptive && !c.cfg.Paid {
		c.gate.result(float64(accepted) / float64(drafted))
		return
	}
	// A probe of a width is not held against the text.
	if share, ok := c.payoff(accepted+1, seconds); ok && !probe {
		c.gate.result(share)
	}
}
