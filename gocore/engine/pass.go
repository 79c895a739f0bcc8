package engine

import (
	"time"

	"axlm/gocore/errs"
	"axlm/gocore/ngram"
	"axlm/gocore/sampling"
	"axlm/mlxc"
)

// input is what a pass runs on: tokens that the host knows, or the one that an
// earlier pass still computes.
type input struct {
	ids      []int32  // the last token, then drafts, then padding
	after    *pass    // a plain pass whose token comes next, instead of ids
	rows     rowRange // of the prompt's embeddings, instead or as well
	decision ngram.Decision
}

// tokens counts the input's.
func (in input) tokens() int { return max(1, len(in.ids)) }

// errNoToken ends a request whose next token cannot be drawn.
var errNoToken = errs.Value("sampling: no token can be drawn, since the log probabilities have no finite maximum: " +
	"the model gave NaN or infinite logits, or logit_bias or another processor bans every token or adds infinity to one")

// pass is one request's part of a forward under way: MLX computes its tokens
// while we prepare what follows. It is consumed once, or freed.
type pass struct {
	flight   *flight
	first    int // its first row among the flight's
	rows     int
	decision ngram.Decision
	logprobs []mlxc.Array   // a row [vocab] each, when the request wants them
	states   []sampling.Key // the random generator's after each row's draw

	timing timing
}

// keepRows keeps each of the pass's rows of logprobs [rows, vocab] as an array
// of its own.
func (p *pass) keepRows(s *mlxc.Scope, logprobs mlxc.Array) {
	if s.Err() != nil {
		return
	}
	all, vocab := logprobs.Dim(0), logprobs.Dim(1)
	for i := range p.rows {
		row := logprobs
		if all > 1 {
			// A copy: a view would keep the whole block alive.
			row = s.Contiguous(rowsOf(s, logprobs, p.first+i, 1))
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
	ids, err := p.flight.read()
	if err == nil && len(p.logprobs) > 0 {
		err = mlxc.Eval(p.logprobs...)
	}
	if err != nil {
		return nil, err
	}
	return ids[p.first : p.first+p.rows], nil
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
	if p == nil || p.flight == nil {
		return
	}
	for _, a := range p.logprobs {
		a.Free()
	}
	p.flight.leave()
	p.flight = nil
}
