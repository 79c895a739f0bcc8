package ngram

const (
	firstPricing = 32  // drafting steps before plain ones are timed; twice as many before the next time, and so on
	nextPricing  = 512 // up to this: texts grow, and so does what a token costs
	pricingSteps = 6   // plain steps in a row then; the first of them is not queued ahead, the last not timed
)

// pricing says when steps that would have drafts are to be plain, so that the cost of plain ones is known.
type pricing struct {
	drafted int // steps with drafts since plain ones were last timed
	wait    int // so many before they are timed again
	plain   int // plain steps still to come
}

// due tells whether the next step is to be plain. A price that a busy machine distorted does not stand for long: the
// times between them only grow, and each is a new one.
func (p *pricing) due(cost *CostModel) bool {
	if p.drafted >= max(p.wait, firstPricing) {
		p.wait = min(2*max(p.wait, firstPricing), nextPricing)
		p.drafted, p.plain = 0, pricingSteps
		cost.repricePlain()
	}
	return p.plain > 0
}

func (p *pricing) plainStep() { p.plain = max(p.plain-1, 0) }

// paid drafts as much as it may, unless drafts were found to cost more than they bring.
func (s *Speculator) paid(limit int, ahead bool) verdict {
	c := s.control
	c.cost.read(&c.choose.curve, c.cfg.probing())
	switch {
	case !c.gate.open():
		return verdict{reason: ReasonPaused}
	case c.gate.threshold > 0 && c.pricing.due(c.cost):
		return verdict{reason: ReasonRecheck}
	case ahead:
		// What is proposed after a token that is not known yet would be thrown away: it is enough that drafts follow.
		return verdict{option: option{depth: 1}}
	}
	return s.first(limit)
}
