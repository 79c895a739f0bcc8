package engine

import (
	"context"
	"fmt"
	"slices"

	"axlm/gocore/errs"
	"axlm/gocore/ngram"
	"axlm/gocore/sampling"
	"axlm/gocore/scheduler"
)

// speculate gives the request its speculator, if its options want one.
func (r *Request) speculate() error {
	c := r.options.Speculation
	if r.options.DraftModel != nil {
		return r.speculateWithModel()
	}
	if c == nil || r.options.ReaderChooses {
		return nil
	}
	config := *c
	if r.model.recurrent {
		config = config.ForRecurrent()
	}
	if list := r.options.Proposers; len(list) > 0 {
		var err error
		if r.spec, err = ngram.NewWithProposers(config, r.model.shared, list...); err != nil {
			return errs.Value("%v", err)
		}
		return nil
	}
	r.ngrams = &config
	return r.prepare(r.options.Cache.lastKnown())
}

// prepare indexes the text before the request and its prompt. That of a long
// prompt takes time: it is done on the caller's goroutine, not on the engine's.
func (r *Request) prepare(before []int32) error {
	var err error
	if r.spec, err = ngram.Prepare(context.Background(), *r.ngrams, r.model.shared, before, r.prompt); err != nil {
		return errs.Value("%v", err)
	}
	r.shown = before
	return nil
}

// show makes sure that the speculator has seen the text before the request,
// which may have changed since it was prepared, and the prompt. It runs on the
// engine's thread.
func (r *Request) show(before []int32) error {
	r.known = len(before)
	switch {
	case r.spec == nil:
		return nil
	case r.ngrams == nil:
		r.spec.Observe(before...)
		r.spec.Observe(r.prompt...)
		return nil
	case slices.Equal(r.shown, before):
		return nil
	}
	return r.prepare(before)
}

// longText is from how many tokens on a text is stored on a goroutine of its
// own.
const longText = 1 << 14

// forget hands the speculator's text to the model's store.
func (r *Request) forget() {
	if r.spec == nil {
		return
	}
	r.spec.Settle()
	if r.spec.Len() < longText {
		r.spec.Finish()
		return
	}
	go r.spec.Finish()
}

// speculateWithModel gives the request a draft model as its speculator's one
// proposer.
func (r *Request) speculateWithModel() error {
	var err error
	if r.drafter, err = newDrafter(r); err != nil {
		return err
	}
	if r.options.ReaderChooses || r.options.DraftTokens == 0 {
		if r.options.DraftCache == nil {
			r.drafter = nil // nobody wants to know where it is
		}
		return nil
	}
	config := ngram.DefaultConfig()
	if c := r.options.Speculation; c != nil {
		config = *c
	}
	config.Adaptive, config.Paid, config.MaxDraftTokens = false, true, min(r.options.DraftTokens, ngram.MaxDraft)
	if r.spec, err = ngram.NewWithProposers(config, r.model.shared, r.drafter); err != nil {
		return errs.Value("%v", err)
	}
	return nil
}

// remaining is how many tokens may still come.
func (r *Request) remaining() int {
	if r.options.MaxTokens == Unlimited {
		return ngram.MaxWidth
	}
	return r.options.MaxTokens - r.generated
}

// draftable is how many drafts a pass may verify now.
func (r *Request) draftable() int {
	most := r.remaining()
	if r.drafter != nil {
		most++ // as mlx_lm has it, the last token may be a draft too
	}
	return min(most, r.rows()) - 1
}

// rows is how many tokens a pass may have now, all but the first of which may
// have to be taken back.
func (r *Request) rows() int {
	offset := r.cache.Offset()
	n := r.model.rows(offset)
	if room, limited := r.cache.Room(); limited {
		n = min(n, room)
	}
	if q := r.options.QuantisedKV; q != nil && offset < q.Start {
		n = min(n, q.Start-offset) // what comes after sees quantised keys
	}
	return max(1, n)
}

// rows is how many tokens a pass may have after offset of them.
func (m *Model) rows(offset int) int {
	if m.drafted == 0 {
		return ngram.MaxWidth
	}
	return max(1, m.drafted-offset)
}

// proposal is what the request's next pass could be.
type proposal struct {
	alone    bool           // no other request shares it
	decision ngram.Decision // of a request alone
	offer    ngram.Offer    // of one among others
}

// propose asks the requests that decode next what they could verify. One that
// is alone decides for itself; those that share a pass make offers, of which
// the scheduler takes what pays for all. While a plain pass of such a one is
// under way its drafts after that pass's token stand for what to wait for.
func (e *Engine) propose() {
	mates := map[*Model]int{}
	for _, r := range e.order {
		if r.credit > 0 && r.shares() && r.decodes() {
			mates[r.model]++
		}
	}
	for _, r := range e.order {
		if r.credit == 0 || r.options.ReaderChooses || r.spec == nil || !r.decodes() {
			continue
		}
		if err := guarded(func() error { r.propose(r.shares() && mates[r.model] > 1); return nil }); err != nil {
			e.drop(r, err)
			return // the order has changed; the next step proposes again
		}
	}
}

func (r *Request) propose(shared bool) {
	r.next = proposal{alone: !shared}
	var event scheduler.Event
	switch {
	case r.generated == 0 && r.embeddings(r.total-1, 1).n > 0:
		return
	case !shared && r.ahead != nil:
		return
	case !shared:
		d := r.spec.Plan(r.draftable())
		if r.engine.warm {
			d = fit(d)
		}
		// Padding must not reach where drafting must not.
		d.Width = min(d.Width, r.rows())
		r.next.decision = d
		event.N, event.Width = min(len(d.Drafts), scheduler.MaxWidth-1), min(d.Width, scheduler.MaxWidth)
		event.Odds = certain[:event.N]
	default:
		o := r.spec.Offer(min(r.draftable(), scheduler.MaxWidth-1))
		r.next.offer = o
		odds := o.Odds
		if r.ahead != nil && len(odds) > 0 {
			odds = odds[1:]
		}
		event.Odds, event.Force = millionths(odds), o.Force
		if o.Force {
			event.N = len(event.Odds)
		}
	}
	r.engine.planner.drafts(r, event)
}

// certain are the odds of drafts that a request has chosen for itself.
var certain = func() (all [scheduler.MaxWidth - 1]uint32) {
	for i := range all {
		all[i] = 1_000_000
	}
	return all
}()

// decide is the input of the pass after the last token that is final, with so
// many of the drafts that were proposed.
func (r *Request) decide(drafts int) input {
	in := r.last()
	if r.spec == nil || in.rows.n > 0 {
		return in
	}
	d := r.next.decision
	if !r.next.alone {
		d = r.spec.Take(r.next.offer, drafts)
	} else if drafts < len(d.Drafts) {
		d.Drafts, d.Width = d.Drafts[:drafts], drafts+1
	}
	r.next = proposal{}
	in.decision = d
	if len(d.Drafts) == 0 {
		return in
	}
	in.ids = append(in.ids, d.Drafts...)
	for len(in.ids) < d.Width {
		// Padding: rows that only make the pass as wide as is cheapest.
		in.ids = append(in.ids, d.Drafts[len(d.Drafts)-1])
	}
	return in
}

// last is the input of a plain pass after the last token that is final.
func (r *Request) last() input {
	in := input{decision: ngram.Decision{Lookahead: true}}
	if n := len(r.text); n > 0 {
		in.ids = []int32{r.text[n-1]}
	}
	if r.generated == 0 {
		in.rows = r.embeddings(r.total-1, 1)
	}
	return in
}

// decideAhead decides how to go on after a pass that is queued already.
func (r *Request) decideAhead() ngram.Decision {
	switch {
	case r.spec == nil:
		return ngram.Decision{Lookahead: true}
	case r.next.alone:
		return r.spec.PlanAhead(r.draftable())
	}
	return r.spec.Take(r.next.offer, 0)
}

// learn tells the speculator what a pass committed and what it cost.
func (r *Request) learn(p *pass, accepted int, seconds float64) {
	if r.spec == nil {
		return
	}
	r.spec.Result(p.decision, accepted, seconds)
	r.spec.Observe(r.text[r.spec.Len()-r.known:]...)
}

// rekey makes key the state of the random generator. A reader that changes it
// between two tokens changes it after the next token's draw: plain decoding
// draws one token ahead. Tokens drawn beyond that are taken back. It runs on
// the engine's thread.
func (e *Engine) rekey(r *Request, key sampling.Key) error {
	if e.requests[r.id] == nil {
		return nil // it ended
	}
	if r.generated == 0 && r.ahead == nil {
		r.state, r.keys = key, nil
		return nil
	}
	drawn, extra := r.unread()
	if err := e.takeBack(r, extra); err != nil {
		return err
	}
	if drawn == 1 && r.ahead != nil {
		// It drew already, from what the generator was.
		if r.cache.WrittenOver() {
			return errs.Value("the token after the next one was drawn already, and a cache of bounded size cannot go back")
		}
		if err := e.withdraw(r, true); err != nil {
			return err
		}
	}
	switch {
	case drawn == 1:
		r.out.Edit(func(t *Token) { t.State = key })
		r.keys.replace(key)
		r.state = key
	case r.ahead != nil:
		r.state, r.ahead.states[0] = key, key
	default:
		r.reseed = &key
	}
	return nil
}

// unread drops all tokens that wait for the reader but the first: plain decoding
// would not have them yet. It returns how many wait now, and how many do not
// any more.
func (r *Request) unread() (waiting, dropped int) {
	extra := r.out.Keep(1)
	if len(extra) > 0 {
		r.final.Store(nil)
	}
	for _, t := range extra {
		t.Free()
	}
	return r.out.State().Waiting, len(extra)
}

// Ahead is where plain decoding leaves the random generator when it yields t:
// it has drawn the token after it already.
func (r *Request) Ahead(t Token) sampling.Key {
	_, state := r.options.Sampler.Draw(t.State)
	return state
}

// takeBack undoes the last n tokens, which the reader never saw: those of a
// verifying pass, whose checkpoint still stands.
func (e *Engine) takeBack(r *Request, n int) error {
	if n == 0 {
		return nil
	}
	r.generated -= n
	r.text = r.text[:len(r.text)-n]
	r.keys.retract(n, &r.state)
	r.stats.GeneratedTokens = r.generated
	if r.spec != nil {
		r.spec.Truncate(r.known + len(r.text))
	}
	// The cache lacks the last token of the text, and more while it is filled again.
	if target := r.base + len(r.text) - 1; r.cache.Offset() > target {
		if err := e.rollback(r.cache, target-r.mark); err != nil {
			return fmt.Errorf("taking back %d tokens: %w", n, err)
		}
	}
	return e.planner.retract(r, n)
}
