package ngram

// counts are the counters of a request, or the sum over requests.
type counts struct {
	steps, draftSteps, probes    int
	drafted, accepted, padded    int
	tokens                       int // committed by counted steps
	seconds                      float64
	reasons                      [len(reasons)]int
	depths, whole, depthAccepted [MaxDraft + 1]int // by drafts of a step: steps, all accepted, tokens accepted
	judged, right                [MaxDraft]int     // by position in the draft
	bySource                     []SourceStats
}

func (c *counts) reason(r Reason) {
	for i := range reasons {
		if reasons[i] == r {
			c.reasons[i]++
		}
	}
}

// draft counts a verified draft.
func (c *counts) draft(drafted, accepted int) {
	c.draftSteps++
	c.drafted += drafted
	c.accepted += accepted
	d := min(drafted, MaxDraft)
	c.depths[d]++
	c.depthAccepted[d] += accepted
	if accepted == drafted {
		c.whole[d]++
	}
	for i := range min(accepted+1, drafted, MaxDraft) {
		c.judged[i]++
		if i < accepted {
			c.right[i]++
		}
	}
}

func (c *counts) source(name string) *SourceStats {
	for i := range c.bySource {
		if c.bySource[i].Proposer == name {
			return &c.bySource[i]
		}
	}
	c.bySource = append(c.bySource, SourceStats{Proposer: name})
	return &c.bySource[len(c.bySource)-1]
}

func (c *counts) add(o *counts) {
	c.steps += o.steps
	c.draftSteps += o.draftSteps
	c.probes += o.probes
	c.drafted += o.drafted
	c.accepted += o.accepted
	c.padded += o.padded
	c.tokens += o.tokens
	c.seconds += o.seconds
	for i := range c.reasons {
		c.reasons[i] += o.reasons[i]
	}
	for i := range c.depths {
		c.depths[i] += o.depths[i]
		c.whole[i] += o.whole[i]
		c.depthAccepted[i] += o.depthAccepted[i]
	}
	for i := range c.judged {
		c.judged[i] += o.judged[i]
		c.right[i] += o.right[i]
	}
	for _, from := range o.bySource {
		to := c.source(from.Proposer)
		to.Steps += from.Steps
		to.Drafted += from.Drafted
		to.Accepted += from.Accepted
	}
}

// Counts says what was drafted and what became of it.
type Counts struct {
	// Steps counts all steps, DraftSteps those with drafts, Probes those that timed a width.
	Steps      int `json:"steps"`
	DraftSteps int `json:"draft_steps"`
	Probes     int `json:"probes"`
	Drafted    int `json:"drafted"`
	Accepted   int `json:"accepted"`
	// PaddedRows counts rows verified beyond the drafts because a wider pass was cheaper.
	PaddedRows int `json:"padded_rows"`
	// Committed counts the tokens that the steps gave, in Seconds.
	Committed int     `json:"committed"`
	Seconds   float64 `json:"seconds"`
	// NoDraft counts steps without drafts by Reason.
	NoDraft    map[string]int  `json:"no_draft"`
	ByDepth    []DepthStats    `json:"by_depth"`
	ByPosition []PositionStats `json:"by_position"`
	ByProposer []SourceStats   `json:"by_proposer"`
}

// DepthStats counts the steps that verified Depth drafts.
type DepthStats struct {
	Depth    int `json:"depth"`
	Steps    int `json:"steps"`
	Accepted int `json:"accepted"` // tokens
	Whole    int `json:"whole"`    // steps in which all were accepted
}

// PositionStats counts the drafts at one place in the draft (1 is the first): Judged are those all before which were
// accepted.
type PositionStats struct {
	Position int `json:"position"`
	Judged   int `json:"judged"`
	Accepted int `json:"accepted"`
}

// SourceStats counts one proposer's verified drafts.
type SourceStats struct {
	Proposer string `json:"proposer"`
	Steps    int    `json:"steps"`
	Drafted  int    `json:"drafted"`
	Accepted int    `json:"accepted"`
}

func (c *counts) stats() Counts {
	s := Counts{
		Steps: c.steps, DraftSteps: c.draftSteps, Probes: c.probes, Drafted: c.drafted, Accepted: c.accepted,
		PaddedRows: c.padded, Committed: c.tokens, Seconds: c.seconds, NoDraft: map[string]int{},
		ByDepth: []DepthStats{}, ByPosition: []PositionStats{}, ByProposer: append([]SourceStats{}, c.bySource...),
	}
	for i, n := range c.reasons {
		if n > 0 {
			s.NoDraft[string(reasons[i])] = n
		}
	}
	for d, n := range c.depths {
		if n > 0 {
			s.ByDepth = append(s.ByDepth, DepthStats{d, n, c.depthAccepted[d], c.whole[d]})
		}
	}
	for i, n := range c.judged {
		if n > 0 {
			s.ByPosition = append(s.ByPosition, PositionStats{i + 1, n, c.right[i]})
		}
	}
	return s
}

// CostStats is the learned cost curve.
type CostStats struct {
	Widths []CostPoint `json:"widths"`
	// PlainSync is the cost of a plain step not queued ahead; 0 while not known. Partial is what a partial acceptance
	// costs beyond its step (recurrent state), which may be nothing; PartialKnown tells whether that was measured.
	PlainSync    float64 `json:"plain_sync"`
	Partial      float64 `json:"partial"`
	PartialKnown bool    `json:"partial_known"`
	Probes       int     `json:"probes"`
	// ProbeInterval is the steps between probes at present, ProbeBudget the seconds that they may still lose.
	ProbeInterval int     `json:"probe_interval"`
	ProbeBudget   float64 `json:"probe_budget"`
}

func (m *CostModel) stats() CostStats {
	c := m.Curve()
	m.mu.Lock()
	defer m.mu.Unlock()
	return CostStats{Widths: c.Points(), PlainSync: c.sync, Partial: c.partial, PartialKnown: c.priced, Probes: m.probes,
		ProbeInterval: c.wait, ProbeBudget: m.budget}
}

// Stats describes one request.
type Stats struct {
	Tokens int `json:"tokens"` // length of the history
	Counts
	Gate  GateStats `json:"gate"`
	Cost  CostStats `json:"cost"`
	Bytes int       `json:"bytes"` // held by history and proposers
}
