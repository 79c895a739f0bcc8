package engine

import (
	"fmt"
	"time"

	"axlm/gocore/errs"
	"axlm/gocore/models"
	"axlm/gocore/ngram"
	"axlm/gocore/sampling"
	"axlm/mlxc"
)

// input is what a pass runs on: tokens that the host knows, or the one that an
// earlier pass still computes.
type input struct {
	ids      []int32    // the last token, then drafts, then padding
	next     mlxc.Array // [1], instead of ids
	rows     rowRange   // of the prompt's embeddings, instead or as well
	decision ngram.Decision
}

// next is the input of the pass that follows p, a plain one.
func next(p *pass) input { return input{next: p.tokens} }

// errNoToken ends a request whose next token cannot be drawn.
var errNoToken = errs.Value("sampling: no token can be drawn, since the log probabilities have no finite maximum: " +
	"the model gave NaN or infinite logits, or logit_bias or another processor bans every token or adds infinity to one")

// pass is one forward under way: MLX computes its tokens while we prepare what
// follows. It is consumed once, or freed.
type pass struct {
	rows     int
	decision ngram.Decision
	tokens   mlxc.Array     // [rows] uint32, sampled
	logprobs []mlxc.Array   // a row [vocab] each, when the request wants them
	states   []sampling.Key // the random generator's after each row's draw

	timing timing
}

// launch queues a forward and the choice of a token after each of its rows.
func (e *Engine) launch(r *Request, in input) (*pass, error) {
	if err := e.quantise(r); err != nil {
		return nil, err
	}
	p := &pass{rows: max(1, len(in.ids)), decision: in.decision}
	draws := r.draw(p)
	history := sampling.History{Tokens: r.text, Next: in.next}
	if p.rows > 1 {
		history.Drafts = in.ids[1:]
	}
	// A recurrent state keeps what it needs to go back only where it may have
	// to; for the others a checkpoint is a number.
	if p.rows > 1 || !r.model.recurrent {
		r.cache.Checkpoint()
		r.mark = r.cache.Offset()
	}
	err := e.build(func(s *mlxc.Scope) {
		var logits mlxc.Array
		if in.next.Valid() {
			// It may be none, which is seen when it is read: an index beside the
			// vocabulary must reach neither the model nor a processor.
			if !r.options.Sampler.Greedy() {
				history.Next = sampling.Feedable(s, in.next, r.model.vocab)
			}
			logits = r.model.model.Forward(s, models.One(s.Reshape(history.Next, 1, 1), r.cache, p.rows))
		} else {
			logits = r.model.forward(s, in.ids, in.rows.of(s, r.options.Embeddings), r.cache, p.rows)
		}
		if s.Err() != nil {
			return
		}
		logits = s.Reshape(logits, p.rows, -1)
		if len(r.text) > 0 { // mlx_lm asks no processor about embeddings alone
			logits = r.options.Processors.Apply(s, logits, history)
		}
		// The choice is made among log probabilities, not logits: in bfloat16
		// they round differently, and mlx_lm compares the former.
		logprobs := s.Subtract(logits, s.LogSumExp(logits, -1, true))
		p.tokens = s.Keep(r.options.Sampler.Choose(s, logprobs, draws))
		if r.options.Logprobs {
			p.keepRows(s, logprobs)
		}
	})
	if err == nil {
		err = mlxc.AsyncEval(append(p.logprobs, p.tokens)...)
	}
	if err != nil {
		p.free()
		return nil, err
	}
	return p, nil
}

// keepRows keeps each row of logprobs [rows, vocab] as an array of its own.
func (p *pass) keepRows(s *mlxc.Scope, logprobs mlxc.Array) {
	if s.Err() != nil {
		return
	}
	vocab := logprobs.Dim(1)
	for i := range p.rows {
		row := logprobs
		if p.rows > 1 {
			// A copy: a view would keep the whole block alive.
			row = s.Contiguous(s.Slice(logprobs, []int{i, 0}, []int{i + 1, vocab}))
		}
		p.logprobs = append(p.logprobs, s.Keep(s.Reshape(row, vocab)))
	}
}

// draw takes each row's random numbers. A plain pass uses up its draw at once,
// since the next one may be launched before it is read; of a verifying pass,
// commit uses up as many as were accepted.
func (r *Request) draw(p *pass) []sampling.Draw {
	if len(r.keys) == 0 {
		r.keys.start(r.state)
	}
	draws, states := r.draws(p.rows)
	p.states, r.state, r.reseed = states, states[0], nil
	return draws
}

// draws are the random numbers of the next n rows, and the generator's states
// after each of them.
func (r *Request) draws(n int) ([]sampling.Draw, []sampling.Key) {
	draws, states := make([]sampling.Draw, n), make([]sampling.Key, n)
	state := r.state
	for i := range draws {
		draws[i], state = r.options.Sampler.Draw(state)
		if i == 0 && r.reseed != nil {
			state = *r.reseed
		}
		states[i] = state
	}
	return draws, states
}

// read waits for the pass's tokens.
func (p *pass) read() ([]int32, error) {
	if err := mlxc.Eval(append(p.logprobs, p.tokens)...); err != nil {
		return nil, err
	}
	ids, err := p.tokens.Uint32s()
	if err != nil {
		return nil, fmt.Errorf("reading sampled tokens: %w", err)
	}
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out, nil
}

// accepted counts the drafts that the model would have chosen itself.
func (p *pass) accepted(ids []int32) int {
	n := 0
	for n < len(p.decision.Drafts) && p.decision.Drafts[n] == ids[n] {
		n++
	}
	return n
}

// drawable cuts ids off where no token could be drawn, and tells whether there
// was such a place. vocab is the number of tokens that there are.
func drawable(ids []int32, vocab int) ([]int32, bool) {
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return ids[:i], true
		}
	}
	return ids, false
}

// timing is what is known of when a pass ran.
type timing struct {
	started time.Time     // when the device could begin with it
	paused  time.Duration // since then, until the reader asked for more
	shared  bool          // another request ran since then
}

// seconds is what the pass cost, read at now after waiting since then; 0 when
// that cannot be told.
func (t timing) seconds(now, waiting time.Time) float64 {
	took := now.Sub(t.started)
	switch {
	case t.shared:
		return 0
	case now.Sub(waiting) < took/10:
		// It was ready before we asked: the reader's pause was none of its cost.
		took -= t.paused
	}
	return took.Seconds()
}

func (p *pass) free() {
	if p == nil {
		return
	}
	p.tokens.Free()
	for _, a := range p.logprobs {
		a.Free()
	}
}
