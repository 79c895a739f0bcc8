package engine

import (
	"fmt"
	"slices"

	"axlm/gocore/models"
	"axlm/gocore/sampling"
	"axlm/mlxc"
)

// flight is a forward under way, for one request or for several at once, and
// the choice of a token after each of its rows.
type flight struct {
	tokens mlxc.Array // [rows] uint32, sampled
	ids    []int32    // the tokens, once they were read
	rows   int
	passes int // that have not been freed
	shared bool
}

// boarding is a request that is about to take part in a flight.
type boarding struct {
	request *Request
	in      input
	pass    *pass
	draws   []sampling.Draw
	before  sampling.Key // the random generator's state before its draws
	reseed  *sampling.Key
	err     error
}

// launch queues a forward for requests of one model, and the choice of a token
// after each of its rows. Where that fails for several at once each is tried
// alone, so that the culprit's error is its own; their err says who it was.
func (e *Engine) launch(all []*boarding) {
	ready := all[:0:0]
	for _, b := range all {
		if b.err = e.board(b, len(all) > 1); b.err == nil {
			ready = append(ready, b)
		}
	}
	if len(ready) == 0 {
		return
	}
	err := e.fly(ready)
	if err == nil {
		return
	}
	if len(ready) == 1 {
		ready[0].err = err
		return
	}
	for _, b := range ready {
		if b.err = e.disembark(b); b.err == nil {
			e.launch([]*boarding{b})
		}
	}
}

// board prepares a request: its cache, its random numbers and the mark that it
// can go back to.
func (e *Engine) board(b *boarding, shared bool) error {
	r := b.request
	if err := e.quantise(r); err != nil {
		return err
	}
	b.pass = &pass{rows: b.in.tokens(), decision: b.in.decision}
	b.before, b.reseed = r.state, r.reseed
	b.draws = r.draw(b.pass)
	// A recurrent state keeps what it needs to go back only where it may have
	// to; for the others a checkpoint is a number.
	if shared || b.pass.rows > 1 || !r.model.recurrent {
		r.checkpoint()
	}
	return nil
}

// checkpoint marks where the cache can go back to.
func (r *Request) checkpoint() {
	r.cache.Checkpoint()
	r.mark = r.cache.Offset()
}

// disembark undoes board and a forward that failed while it was built.
func (e *Engine) disembark(b *boarding) error {
	b.request.state, b.request.reseed = b.before, b.reseed
	return e.rollback(b.request.cache, 0)
}

// fly builds the forward and starts it.
func (e *Engine) fly(all []*boarding) error {
	f := &flight{shared: len(all) > 1}
	for _, b := range all {
		b.pass.first = f.rows
		f.rows += b.pass.rows
	}
	var started []mlxc.Array
	err := e.build(func(s *mlxc.Scope) {
		logits := e.forward(s, all)
		if s.Err() != nil {
			return
		}
		logits = processed(s, all, s.Reshape(logits, f.rows, -1))
		// The choice is made among log probabilities, not logits: in bfloat16
		// they round differently, and mlx_lm compares the former.
		logprobs := s.Subtract(logits, s.LogSumExp(logits, -1, true))
		f.tokens = s.Keep(chosen(s, all, logprobs))
		for _, b := range all {
			if b.request.options.Logprobs {
				b.pass.keepRows(s, logprobs)
				started = append(started, b.pass.logprobs...)
			}
		}
	})
	if err == nil {
		err = mlxc.AsyncEval(append(started, f.tokens)...)
	}
	if err != nil {
		f.tokens.Free()
		for _, b := range all {
			for _, a := range b.pass.logprobs {
				a.Free()
			}
			b.pass.logprobs = nil
		}
		return err
	}
	f.passes = len(all)
	count := &all[0].request.model.passes
	count.Passes++
	count.Requests += len(all)
	count.Tokens += f.rows
	for _, b := range all {
		b.pass.flight = f
	}
	return nil
}

// forward builds the model's part: logits [1, rows, vocab].
func (e *Engine) forward(s *mlxc.Scope, all []*boarding) mlxc.Array {
	m := all[0].request.model
	if b := all[0]; len(all) == 1 && b.in.after == nil {
		return m.forward(s, b.in.ids, b.in.rows.of(s, b.request.options.Embeddings), b.request.cache, b.pass.rows)
	}
	in := models.Input{IDs: packed(s, all)}
	for _, b := range all {
		in.Spans = append(in.Spans, models.Span{Cache: b.request.cache, Tokens: b.pass.rows, Logits: b.pass.rows})
	}
	return m.model.Forward(s, in)
}

// packed are the requests' input tokens one after another, [1, rows].
func packed(s *mlxc.Scope, all []*boarding) mlxc.Array {
	var ids []int32
	var parts []mlxc.Array
	for _, b := range all {
		if b.in.after != nil {
			parts = append(parts, b.previous(s))
		}
		ids = append(ids, b.in.ids...)
	}
	switch {
	case len(parts) == 0:
		return s.FromInt32s(ids, 1, len(ids))
	case whole(all):
		return s.Reshape(feedable(s, all, all[0].in.after.flight.tokens), 1, -1)
	}
	return s.Reshape(s.Concatenate(0, parts...), 1, -1)
}

// whole tells whether the requests' tokens are all that one flight computes, in
// its order.
func whole(all []*boarding) bool {
	f := all[0].in.after.flight
	for i, b := range all {
		if b.in.after.flight != f || b.in.after.first != i {
			return false
		}
	}
	return f.rows == len(all)
}

// previous is the token [1] that the pass before still computes.
func (b *boarding) previous(s *mlxc.Scope) mlxc.Array {
	p := b.in.after
	token := p.flight.tokens
	if p.flight.rows > 1 {
		token = s.Slice(token, []int{p.first}, []int{p.first + 1})
	}
	return feedable(s, []*boarding{b}, token)
}

// feedable is tokens, of the requests' model, with none that is no token: that
// is seen when they are read, but an index beside the vocabulary must reach
// neither the model nor a processor.
func feedable(s *mlxc.Scope, all []*boarding, tokens mlxc.Array) mlxc.Array {
	for _, b := range all {
		if !b.request.options.Sampler.Greedy() {
			return sampling.Feedable(s, tokens, b.request.model.vocab)
		}
	}
	return tokens
}

// processed is logits [rows, vocab] after the requests' processors.
func processed(s *mlxc.Scope, all []*boarding, logits mlxc.Array) mlxc.Array {
	unchanged := func(b *boarding) bool { // mlx_lm asks no processor about embeddings alone
		return b.request.options.Processors.Empty() || len(b.request.text) == 0
	}
	if !slices.ContainsFunc(all, func(b *boarding) bool { return !unchanged(b) }) {
		return logits
	}
	parts := make([]mlxc.Array, len(all))
	for i, b := range all {
		r := b.request
		parts[i] = logits
		if len(all) > 1 {
			parts[i] = rowsOf(s, logits, b.pass.first, b.pass.rows)
		}
		if unchanged(b) {
			continue
		}
		history := sampling.History{Tokens: r.text}
		if b.in.after != nil {
			history.Next = b.previous(s)
		} else if b.pass.rows > 1 {
			history.Drafts = b.in.ids[1:]
		}
		parts[i] = r.options.Processors.Apply(s, parts[i], history)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return s.Concatenate(0, parts...)
}

// chosen is a token after each row of logprobs [rows, vocab]: neighbours with
// equal samplers choose together.
func chosen(s *mlxc.Scope, all []*boarding, logprobs mlxc.Array) mlxc.Array {
	var parts []mlxc.Array
	for i := 0; i < len(all); {
		sampler := all[i].request.options.Sampler
		first, rows := all[i].pass.first, 0
		var draws []sampling.Draw
		for ; i < len(all) && sampler.Equal(all[i].request.options.Sampler); i++ {
			draws = append(draws, all[i].draws...)
			rows += all[i].pass.rows
		}
		part := logprobs
		if rows < all[len(all)-1].pass.first+all[len(all)-1].pass.rows {
			part = rowsOf(s, logprobs, first, rows)
		}
		parts = append(parts, sampler.Choose(s, part, draws))
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return s.Concatenate(0, parts...)
}

// rowsOf is n rows of a [rows, vocab] from first on.
func rowsOf(s *mlxc.Scope, a mlxc.Array, first, n int) mlxc.Array {
	if s.Err() != nil {
		return mlxc.Array{}
	}
	return s.Slice(a, []int{first, 0}, []int{first + n, a.Dim(1)})
}

// read waits for the flight's tokens.
func (f *flight) read() ([]int32, error) {
	if f.ids != nil {
		return f.ids, nil
	}
	if err := mlxc.Eval(f.tokens); err != nil {
		return nil, err
	}
	ids, err := f.tokens.Uint32s()
	if err != nil {
		return nil, fmt.Errorf("reading sampled tokens: %w", err)
	}
	f.ids = make([]int32, len(ids))
	for i, id := range ids {
		f.ids[i] = int32(id)
	}
	return f.ids, nil
}

// leave gives up one of the flight's passes.
func (f *flight) leave() {
	if f.passes--; f.passes == 0 {
		f.tokens.Free()
	}
}
