package engine

import (
	"fmt"
	"time"

	"axlm/gocore/errs"
	"axlm/gocore/kvcache"
	"axlm/gocore/models"
	"axlm/gocore/ngram"
	"axlm/mlxc"
)

// NameDraftModel is the name of a draft model among the proposers.
const NameDraftModel = "draft_model"

// drafter proposes what another model, a smaller one, would choose. It draws
// with the numbers that the tokens it proposes will be drawn with, so that two
// models which agree also agree where tokens are sampled. It runs on the
// engine's thread.
type drafter struct {
	request  *Request
	model    *Model
	cache    *kvcache.Cache // nil before the request is admitted, and when it was taken away
	borrowed *Cache         // whose state the cache is
	base     int            // the cache's offset before the text
	held     []int32        // the tokens in the cache from there on
	agreed   int            // so many of them are known to be the text's
	mark     int            // the cache's offset at its checkpoint
	parked   int            // the cache's offset when it was taken away
	err      error          // what drafting failed with
	caughtUp time.Time      // when it last took in what had passed without drafts
}

// since is from when on the time of a pass that began at entered is the cost of
// drafting and verifying: what passed without drafts before it was another's.
func (d *drafter) since(entered time.Time) time.Time {
	if d != nil && d.caughtUp.After(entered) {
		return d.caughtUp
	}
	return entered
}

var errDraftClosed = errs.Value("draft_model: the draft model is closed")

// newDrafter checks the options that concern a draft model.
func newDrafter(r *Request) (*drafter, error) {
	m := r.options.DraftModel
	switch n := r.options.DraftTokens; {
	case m.engine != r.engine:
		return nil, errs.Value("draft_model: it belongs to another engine")
	case m.closed.Load():
		return nil, errDraftClosed
	case n < 0:
		return nil, errs.Value("num_draft_tokens: want a count, got %d", n)
	case r.options.Embeddings.Valid():
		return nil, errs.Value("input_embeddings: a draft model knows tokens only, and cannot go on after them")
	}
	for _, part := range []struct {
		what  string
		model *Model
	}{{"model", r.model}, {"draft model", m}} {
		if part.model.recurrent {
			return nil, errs.Value("draft_model: the %s, %s, has recurrent layers, whose state cannot be trimmed; "+
				"generate without a draft model, n-gram speculation works there", part.what, part.model.Folder.ModelType)
		}
	}
	return &drafter{request: r, model: m}, nil
}

// Name implements ngram.Proposer.
func (d *drafter) Name() string { return NameDraftModel }

// Observe implements ngram.Proposer: the text is the request's, and is read
// when there is something to draft.
func (d *drafter) Observe(*ngram.History, int) {}

// Feedback implements ngram.Proposer.
func (d *drafter) Feedback(int, int) {}

// Truncate implements ngram.Proposer.
func (d *drafter) Truncate(_ *ngram.History, n int) {
	d.agreed = min(d.agreed, max(0, n-d.request.known))
}

// Bytes implements ngram.Proposer: what the drafter holds in memory of ours,
// not of MLX.
func (d *drafter) Bytes() int { return 4 * cap(d.held) }

// Draft implements ngram.Proposer. An error ends the request, see failed.
func (d *drafter) Draft(_ *ngram.History, dst []ngram.Draft) int {
	text := d.request.text
	if len(dst) == 0 || d.err != nil || d.cache == nil || !d.knows(text[d.agreed:]) {
		return 0
	}
	ids, err := d.draft(text, len(dst))
	if err != nil {
		d.err = fmt.Errorf("draft model: %w", err)
		return 0
	}
	for i, id := range ids {
		dst[i] = ngram.Draft{Token: id, P: 1}
	}
	return len(ids)
}

// failed is what the last Draft failed with.
func (d *drafter) failed() error {
	if d == nil {
		return nil
	}
	return d.err
}

// knows tells whether all the tokens are in the draft model's vocabulary.
func (d *drafter) knows(ids []int32) bool {
	for _, id := range ids {
		if int(id) >= d.model.vocab {
			return false
		}
	}
	return true
}

// follow brings the cache to the text, the request's or a beginning of it, in
// steps of a prompt's.
func (d *drafter) follow(text []int32) error {
	if d == nil || d.cache == nil || !d.knows(text[min(d.agreed, len(text)):]) {
		return nil
	}
	err := d.align(text)
	if err == nil {
		err = d.extend(text[len(d.held):])
	}
	if err != nil {
		return fmt.Errorf("draft model: %w", err)
	}
	return nil
}

// align takes back what the cache holds beyond the beginning that it has in
// common with the text.
func (d *drafter) align(text []int32) error {
	if d.model.model == nil {
		return errDraftClosed
	}
	n := min(d.agreed, len(text))
	for n < len(d.held) && n < len(text) && d.held[n] == text[n] {
		n++
	}
	d.agreed = n
	if n == len(d.held) {
		return nil
	}
	d.held = d.held[:n]
	return d.request.engine.rollback(d.cache, d.base+n-d.mark)
}

// extend appends tokens to the cache and waits for it.
func (d *drafter) extend(ids []int32) error {
	for len(ids) > 0 {
		if err := d.quantise(); err != nil {
			return err
		}
		n := d.request.engine.stride(min(len(ids), d.request.options.PrefillStepSize))
		err := d.request.engine.build(func(s *mlxc.Scope) {
			d.model.model.Forward(s, models.One(s.FromInt32s(ids[:n], 1, n), d.cache, 0))
		})
		if err == nil {
			err = d.request.engine.evaluate(d.cache, n, d.request.wanted)
		}
		if err != nil {
			return err
		}
		d.held = append(d.held, ids[:n]...)
		ids = ids[n:]
		d.agreed = len(d.held)
	}
	return nil
}

// draft chooses n tokens after the text, or as many as the cache can take back.
func (d *drafter) draft(text []int32, n int) ([]int32, error) {
	// The last token is fed in any case, for its logits. A cache that was taken
	// away meanwhile may hold it already; then the next one is waited for.
	if d.base+len(text)-1 < d.mark {
		return nil, nil
	}
	if err := d.align(text[:len(text)-1]); err != nil {
		return nil, err
	}
	// After a pass whose drafts were all right two tokens are new, the last
	// draft and the one after it. More are taken in by themselves.
	if behind := len(text) - len(d.held); behind > 2 {
		if err := d.extend(text[len(d.held) : len(text)-1]); err != nil {
			return nil, err
		}
		d.caughtUp = time.Now()
	}
	if err := d.quantise(); err != nil {
		return nil, err
	}
	fed := text[len(d.held):]
	if room, limited := d.cache.Room(); limited {
		n = min(n, room-len(fed)+1)
	}
	if n < 1 {
		return nil, nil
	}
	d.checkpoint()
	ids, err := d.choose(text, fed, n)
	if err != nil {
		return nil, err
	}
	// The last one was chosen, and not fed; padding was.
	d.held = append(append(d.held, fed...), ids[:n-1]...)
	d.agreed = len(text)
	if end := d.base + len(d.held); d.cache.Offset() > end {
		return ids, d.request.engine.rollback(d.cache, end-d.mark)
	}
	return ids, nil
}

func (d *drafter) choose(text, fed []int32, n int) ([]int32, error) {
	c := chain{drafter: d, text: text, fed: fed, stepwise: d.stepwise()}
	defer c.free()
	draws, _ := d.request.draws(n)
	for i := range n {
		if err := c.step(draws[i : i+1]); err != nil {
			return nil, err
		}
	}
	return c.read()
}

// stepwise tells whether the cache can go back over several forwards, not only
// within the last one.
func (d *drafter) stepwise() bool {
	for _, l := range d.cache.Layers {
		if _, windowed := l.(*kvcache.Window); windowed {
			return false
		}
	}
	return true
}
