package ngram

// Offer is what a request could verify in a pass that it shares with others. Whoever sees all of them decides how much
// of it is verified, since what that costs depends on what the others do.
type Offer struct {
	// Drafts are the tokens that may follow, good until the speculator's next answer.
	Drafts []int32
	// Odds are, for each of them, the chance that it and all before it are accepted; they fall. Good as long.
	Odds []float64
	// Force says that they are to be verified whatever that costs.
	Force bool

	source int
	reason Reason
}

// Offer proposes drafts for a shared pass, at most limit. Take is due then.
func (s *Speculator) Offer(limit int) Offer {
	c := s.control
	limit = min(limit, s.cfg.depth())
	switch {
	case limit <= 0:
		return Offer{reason: ReasonLimit}
	case c.cooldown > 0:
		return Offer{reason: ReasonCooldown}
	case !s.cfg.Adaptive:
		return s.offerPlain(limit)
	}
	if c.gather(s.history, s.proposers, limit) == 0 {
		return Offer{reason: ReasonNoMatch}
	}
	best := 0
	for i := range c.cands {
		if c.cands[i].tokens[c.cands[i].n] > c.cands[best].tokens[c.cands[best].n] {
			best = i
		}
	}
	if !c.gate.open() {
		s.watch(&verdict{}, false)
		return Offer{reason: ReasonPaused}
	}
	cand := &c.cands[best]
	o := Offer{source: best, Odds: cand.whole[1 : cand.n+1]}
	o.Drafts = s.copyDrafts(best, cand.n)
	return o
}

// offerPlain is the plain scheme's: all that the first proposer has, whenever the gate is open.
func (s *Speculator) offerPlain(limit int) Offer {
	v := s.plainSpecification(limit)
	if v.depth == 0 {
		return Offer{reason: v.reason}
	}
	odds := make([]float64, v.depth)
	for i := range odds {
		odds[i] = 1
	}
	return Offer{source: v.source, Drafts: s.copyDrafts(v.source, v.depth), Odds: odds, Force: true}
}

func (s *Speculator) copyDrafts(source, n int) []int32 {
	for i, draft := range s.control.cands[source].drafts[:n] {
		s.tokens[i] = draft.Token
	}
	return s.tokens[:n]
}

// Take decides that the first n of an offer's drafts are verified next. Result is due after that step.
func (s *Speculator) Take(o Offer, n int) Decision {
	s.seq++
	s.pending = true
	n = min(max(n, 0), len(o.Drafts))
	if s.cfg.Adaptive && len(o.Drafts) > 0 {
		s.watch(&verdict{option: option{source: o.source, depth: n}}, false)
	}
	d := Decision{Width: n + 1, seq: s.seq, Lookahead: n == 0}
	if n == 0 {
		if d.Reason = o.reason; d.Reason == ReasonNone {
			d.Reason = ReasonNotWorth
		}
		return d
	}
	s.source, s.depth = o.source, n
	d.Drafts, d.Proposer = o.Drafts[:n], s.proposers[o.source].Name()
	return d
}
