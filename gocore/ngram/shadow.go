package ngram

const idleShadow = 8 // tokens compared of a draft that is not verified; few, so that a fresh one can soon begin

// shadow compares a draft with the text as it goes on. A token is accepted by verification exactly if plain decoding
// gives the same, so this is the outcome of verification, verified or not, and of the tokens beyond the verified ones
// too: a depth that is never chosen is still learned about.
type shadow struct {
	drafts  [MaxDraft]Draft
	n, at   int // n = 0: none is running
	depth   int // of the option that it stands for; 0: the gate is not told
	seconds float64
}

// start begins with the first of the drafts; o is the option they would have been verified as.
func (s *shadow) start(drafts []Draft, o option) {
	s.n, s.at = copy(s.drafts[:], drafts), 0
	s.depth, s.seconds = o.depth, o.seconds
}

// watch lets a shadow follow each candidate that the decision v leaves. A chosen one is followed as far as it goes,
// in place of what its shadow did before; the others when theirs are free.
func (s *Speculator) watch(v *verdict, ahead bool) {
	c := s.control
	for i := range s.shadows {
		sh, cand := &s.shadows[i], &c.cands[i]
		chosen := v.depth > 0 && !ahead && v.source == i
		if cand.n == 0 || sh.n > 0 && !chosen {
			continue
		}
		if chosen {
			c.learn(i, sh, sh.at) // what was right so far
			sh.start(cand.drafts[:cand.n], option{})
			continue
		}
		var stands option
		if v.shadow.depth > 0 && v.shadow.source == i {
			stands = v.shadow
		}
		sh.start(cand.drafts[:min(cand.n, idleShadow)], stands)
	}
}

// compare lets the shadow of proposer i see new tokens of the text.
func (s *Speculator) compare(i int, tokens []int32) {
	sh := &s.shadows[i]
	for _, t := range tokens {
		if sh.n == 0 {
			return
		}
		if sh.drafts[sh.at].Token == t {
			if sh.at++; sh.at < sh.n {
				continue
			}
		}
		s.control.resolve(i, sh)
	}
}

// resolve books a shadow's outcome for proposer i.
func (c *controller) resolve(i int, s *shadow) {
	if s.depth > 0 {
		committed := min(s.at, s.depth) + 1
		if s.at == s.n {
			committed = s.depth + 1 // taken to go on as it began
		}
		if share, ok := c.payoff(committed, s.seconds); ok {
			c.gate.shadow(share)
		}
	}
	c.learn(i, s, min(s.at+1, s.n))
}

// learn books the first judged tokens of a shadow and ends it.
func (c *controller) learn(i int, s *shadow, judged int) {
	c.banks[i].learn(&c.recent[i], s.drafts[:judged], s.at)
	s.n, s.at = 0, 0
}
