package engine

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"axlm/gocore/errs"
	"axlm/gocore/kvcache"
	"axlm/gocore/mailbox"
	"axlm/gocore/ngram"
	"axlm/gocore/sampling"
	"axlm/mlxc"
)

// Unlimited as MaxTokens means that only an end token ends the request.
const Unlimited = -1

// Options are a request's.
type Options struct {
	MaxTokens       int     // tokens to generate; Unlimited, or 0 to process the prompt alone
	PrefillStepSize int     // prompt tokens a prefill step, at most
	EndTokens       []int32 // a token of these is the last one
	Logprobs        bool    // keep each token's log probabilities

	Sampler    *sampling.Sampler    // nil takes the most probable token
	Processors *sampling.Processors // nil for none

	// ReaderChooses leaves the choice of each token to the reader: Next gives
	// logits in place of log probabilities, and Choose answers. Sampler,
	// Processors and Speculation are not used then.
	ReaderChooses bool

	// Speculation makes the engine draft tokens and verify them; nil is plain
	// decoding. It never changes a token.
	Speculation *ngram.Config
	// Proposers replace the built-in ones.
	Proposers []ngram.Proposer

	// DraftModel, a model of the same engine, proposes tokens in place of
	// n-grams, DraftTokens at most a pass. Of Speculation it heeds what does not
	// concern n-grams.
	DraftModel  *Model
	DraftTokens int
	DraftCache  *Cache // what the draft model continues; see Cache

	// Cache is what the request continues, and leaves behind; nil begins anew.
	Cache *Cache
	// MaxKVSize bounds the keys and values of a new cache, 0 for no bound: see
	// kvcache.Rotating. Layers with windows of their own have no such choice.
	MaxKVSize int
	// QuantisedKV makes the cache quantised.
	QuantisedKV *QuantisedKV
	// Embeddings [N, dim] stand in place of the prompt's tokens, of which there
	// are then N or none. The request takes them over.
	Embeddings mlxc.Array
}

// QuantisedKV says when keys and values are quantised, and how.
type QuantisedKV struct {
	Form  kvcache.QuantForm
	Start int // tokens in the cache from which on
}

// Token is one generated token.
type Token struct {
	ID        int32
	FromDraft bool       // proposed by speculation and accepted
	Logprobs  mlxc.Array // [vocab], the reader's to free; none unless asked for
	// State is the random generator's after the token's draw.
	State sampling.Key
}

// Free releases the token's log probabilities.
func (t Token) Free() { t.Logprobs.Free() }

// Status is what Next found: a token, none within its time, or the end.
type Status = mailbox.Status

// What Next finds.
const (
	Ready    = mailbox.Ready
	Pending  = mailbox.Pending
	Finished = mailbox.Finished
)

// Request is one generation. Its reader calls Next; the engine's thread fills
// it, and never runs ahead of the reader by more than one step.
type Request struct {
	id      uint64
	engine  *Engine
	model   *Model
	options Options
	ends    map[int32]bool

	out    *mailbox.Outbox[Token]
	final  atomic.Pointer[Stats] // when it has ended
	filled atomic.Int64          // prompt tokens in the cache
	closed atomic.Bool           // nobody will read it

	choosing atomic.Bool // Choose is due
	closing  sync.Once

	// What follows is touched by the engine's thread alone.
	prompt    []int32
	text      []int32        // the prompt and the tokens that are final
	total     int            // prompt positions: tokens or embeddings
	cache     *kvcache.Cache // nil once it ended, and while it is lent
	borrowed  *Cache         // whose state the cache is
	base      int            // the cache's offset before the text
	parked    int            // the cache's offset when it was last taken, plus 1; 0: never
	forwarded bool           // a forward of the request was built
	known     int            // tokens before the text that the speculator has seen
	embedded  bool           // its prompt came as embeddings
	keptTo    int            // tokens of the text whose states are kept
	before    int            // the cache's offset when the request got it; -1 after it was given another
	ahead     *pass          // queued before its turn, nil for none
	credit    int            // tokens that it may run ahead of its reader
	idle      int            // steps since a reader waited
	next      proposal       // what the next pass could be
	goal      int            // prompt tokens after which it rests, 0 for none
	generated int
	mark      int // the cache's offset at its checkpoint
	spec      *ngram.Speculator
	ngrams    *ngram.Config // of a speculator that was prepared, nil for others
	shown     []int32       // the text before the prompt that it has seen
	drafter   *drafter      // nil without a draft model
	state     sampling.Key  // the random generator's, before the next draw
	keys      trail         // its states before that
	reseed    *sampling.Key // its state after that draw, when it was changed
	delivered time.Time
	stats     Stats
}

// Stats count what a request did.
type Stats struct {
	PromptTokens    int `json:"prompt_tokens"`
	GeneratedTokens int `json:"generated_tokens"`
	PrefillSteps    int `json:"prefill_steps"`
	DecodeSteps     int `json:"decode_steps"`
	CacheBytes      int `json:"cache_bytes"`
	ReusedTokens    int `json:"reused_tokens"` // whose states were kept from another request
	// Speculation is nil for plain decoding.
	Speculation *ngram.Stats `json:"speculation,omitempty"`
}

// Add adds o's counts to s.
func (s *Stats) Add(o Stats) {
	s.PromptTokens += o.PromptTokens
	s.GeneratedTokens += o.GeneratedTokens
	s.PrefillSteps += o.PrefillSteps
	s.DecodeSteps += o.DecodeSteps
	s.CacheBytes += o.CacheBytes
	s.ReusedTokens += o.ReusedTokens
}

// Generate admits a request. ids must hold at least one token, each within the
// vocabulary. It does not wait for the engine, which may be busy with another
// request's long prompt: what fails later comes from Next.
func (m *Model) Generate(ids []int32, o Options) (*Request, error) {
	total, err := m.promptLength(ids, o.Embeddings)
	if err != nil {
		return nil, err
	}
	if err := m.checkIDs(ids); err != nil {
		return nil, err
	}
	if o.MaxTokens < Unlimited {
		return nil, errs.Value("max_tokens: want a count, or -1 for no limit, got %d", o.MaxTokens)
	}
	if o.PrefillStepSize < 1 {
		return nil, errs.Value("prefill_step_size: want a positive count, got %d", o.PrefillStepSize)
	}
	if err := o.Sampler.Validate(m.vocab); err != nil {
		return nil, err
	}
	if err := o.Processors.Validate(m.vocab); err != nil {
		return nil, err
	}
	e := m.engine
	r := &Request{
		id: e.nextID.Add(1), engine: e, model: m, options: o,
		ends: map[int32]bool{}, out: mailbox.NewOutbox[Token](),
		prompt: slices.Clone(ids), text: slices.Clone(ids), total: total, embedded: o.Embeddings.Valid(),
	}
	for _, t := range o.EndTokens {
		r.ends[t] = true
	}
	if err := r.speculate(); err != nil {
		return nil, err
	}
	if m.closed.Load() {
		return nil, errModelClosed
	}
	if err := e.postFor(r, func() { e.admit(r) }); err != nil {
		return nil, err
	}
	return r, nil
}

// admit gives the request its cache and a place in the planner. It runs on the
// engine's thread.
func (e *Engine) admit(r *Request) {
	m := r.model
	err := guarded(func() error {
		switch {
		case e.leaving():
			return ErrClosed
		case m.model == nil:
			return errModelClosed
		}
		if err := e.equip(r); err != nil {
			return err
		}
		return e.planner.admit(r)
	})
	if err != nil {
		r.release()
		r.out.Fail(err)
		return
	}
	r.stats.PromptTokens = r.total
	e.requests[r.id] = r
	e.order = append(e.order, r)
	m.live[r.id] = r
}

var errRequestClosed = errs.Value("the request is closed")

// Next returns the next token, waiting for it up to wait. The token's arrays
// are the caller's.
func (r *Request) Next(wait time.Duration) (Token, Status, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		t, status, ask, err := r.out.Take()
		if status != Pending {
			return t, status, err
		}
		if ask {
			if err := r.engine.postFor(r, r.want); err != nil {
				return Token{}, Finished, err
			}
		}
		select {
		case <-r.out.Wake():
		case <-r.engine.finished:
			return r.rest()
		case <-deadline.C:
			return Token{}, Pending, nil
		}
	}
}

// rest is what is left to read when the engine has ended.
func (r *Request) rest() (Token, Status, error) {
	t, status, _, err := r.out.Take()
	if status == Pending {
		return Token{}, Finished, ErrClosed
	}
	return t, status, err
}

// want runs on the engine's thread. What is wanted may have been delivered since
// it was asked for: a request that was resumed in between went on by itself.
func (r *Request) want() {
	if !r.out.State().Wanted {
		return
	}
	r.goal = 0
	r.engine.planner.want(r)
}

// Progress tells how many of the prompt's tokens the cache holds.
func (r *Request) Progress() (done, total int) {
	return int(r.filled.Load()), r.total
}

// Stats tells what the request did so far. Once it has ended that is known
// without asking the engine.
func (r *Request) Stats() (Stats, error) {
	if final := r.final.Load(); final != nil {
		return *final, nil
	}
	var s Stats
	err := r.engine.do(func() error {
		s = r.count()
		return nil
	})
	return s, err
}

// count is the request's present statistics. It runs on the engine's thread.
func (r *Request) count() Stats {
	s := r.stats
	if r.cache != nil {
		s.CacheBytes = r.cache.Bytes() + r.drafter.bytes()
	}
	if r.spec != nil {
		spec := r.spec.Stats()
		s.Speculation = &spec
	}
	return s
}

// Reseed makes key the state of the request's random generator: the one it
// starts from before the first token, later what a change of the generator
// between two tokens means for plain decoding, which draws one token ahead.
// It does not wait for the engine.
func (r *Request) Reseed(key sampling.Key) error {
	r.out.Hold()
	err := r.engine.postFor(r, func() {
		defer r.out.Release()
		if err := guarded(func() error { return r.engine.rekey(r, key) }); err != nil {
			r.engine.drop(r, fmt.Errorf("reseeding: %w", err))
		}
	})
	if err != nil {
		r.out.Release()
	}
	return err
}

// Close drops the request: a running step ends first, then its memory is
// free. It does not wait for that, and may be called more than once.
func (r *Request) Close() {
	r.closing.Do(func() {
		r.closed.Store(true)
		// A closed engine has dropped its requests.
		_ = r.engine.postFor(r, func() { r.engine.drop(r, nil) })
	})
}

// deliver hands tokens to the reader.
func (r *Request) deliver(tokens []Token, ended bool) {
	if ended {
		s := r.count()
		r.final.Store(&s)
	}
	r.out.Deliver(tokens, ended)
}

// drop takes the request out and frees what it holds; with err, the reader
// gets that. It runs on the engine's thread.
func (e *Engine) drop(r *Request, err error) {
	if _, live := e.requests[r.id]; live {
		e.leaveOut(r)
		e.planner.remove(r)
		r.stats.CacheBytes = 0
		r.model.past.Add(r.stats)
		r.forget()
		e.surrender(r, err)
		r.drafter.surrender(err)
		r.release()
	}
	if err != nil {
		r.out.Fail(err)
		return
	}
	for _, t := range r.out.Discard() {
		t.Free()
	}
}
