package engine

import (
	"fmt"

	"axlm/gocore/errs"
	"axlm/mlxc"
)

// offer makes the logits after the text and leaves the choice of the token to
// the reader, who calls Choose. Nothing can be queued or drafted meanwhile.
func (e *Engine) offer(r *Request) error {
	if err := e.quantise(r); err != nil {
		return err
	}
	in := r.last()
	var logits mlxc.Array
	err := e.build(func(s *mlxc.Scope) {
		logits = s.Keep(s.Reshape(r.model.forward(s, in.ids, in.rows.of(s, r.options.Embeddings), r.cache, 1), -1))
	})
	if err == nil {
		err = mlxc.Eval(logits)
	}
	if err != nil {
		logits.Free()
		return err
	}
	r.filled.Store(int64(r.total))
	r.stats.DecodeSteps++
	r.choosing.Store(true)
	e.planner.rest(r)
	r.deliver([]Token{{Logprobs: logits}}, false)
	return nil
}

// Choose continues a request of which Options.ReaderChooses with a token. It
// answers each token that Next returned, whose Logprobs are logits then. It does
// not wait for the engine.
func (r *Request) Choose(id int32) error {
	if err := r.model.checkIDs([]int32{id}); err != nil {
		return fmt.Errorf("the chosen token: %w", err)
	}
	switch {
	case r.closed.Load():
		return errRequestClosed
	case !r.choosing.CompareAndSwap(true, false):
		return errs.Value("no choice is due: ask for the next token first")
	}
	return r.engine.postFor(r, func() {
		if r.engine.requests[r.id] == nil {
			return // it ended, which Next tells
		}
		r.text = append(r.text, id)
		r.engine.planner.chosen(r)
		r.generated++
		r.stats.GeneratedTokens = r.generated
	})
}
