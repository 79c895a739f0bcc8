package engine

import (
	"fmt"
	"sync"
	"sync/atomic"

	"axlm/gocore/errs"
	"axlm/gocore/models"
	"axlm/gocore/ngram"
	"axlm/gocore/nn"
	"axlm/gocore/prefix"
	"axlm/gocore/scheduler"
	"axlm/gocore/weights"
	"axlm/mlxc"
)

var errModelClosed = errs.Value("the model is closed")

// Model is a loaded model folder.
type Model struct {
	Folder *weights.Folder

	engine   *Engine
	adapter  atomic.Pointer[string] // the folder of the adapter that it has, nil for none
	closed   atomic.Bool
	manifest *weights.Manifest
	vocab    int
	layers   int
	caches   int           // layers that have a state
	shared   *ngram.Shared // what requests of the model learn from each other
	// recurrent says that the state cannot go back by moving a length.
	recurrent  bool
	drafted    int        // length of text up to which drafts may be verified, 0 for any
	rebuilding sync.Mutex // held by who puts other weights in place
	bytes      atomic.Int64
	parameters atomic.Int64

	// What follows is touched by the engine's thread alone.
	model  models.Model
	store  *nn.Store
	live   map[uint64]*Request
	past   Stats // of requests that are gone
	passes PassStats
	kept   *prefixes // nil for none
}

// Bytes counts what the weights take in memory.
func (m *Model) Bytes() int { return int(m.bytes.Load()) }

// VocabSize counts the token ids that the model knows.
func (m *Model) VocabSize() int { return m.vocab }

// Logits runs ids, batch rows of equal length, after what cache holds, which is
// nothing when it is nil, and returns the logits [batch, L, vocab], evaluated.
// embeddings [batch, L, dim], if any, stand in place of the ids' own; ids may
// then be missing. Both arrays are the caller's. Without a cache, stop gives the
// forward up in the middle; nil never does.
func (m *Model) Logits(ids []int32, batch int, embeddings mlxc.Array, cache *Cache, stop *atomic.Bool) (mlxc.Array, error) {
	length, err := m.checkInput(ids, batch, embeddings)
	if err != nil {
		return mlxc.Array{}, err
	}
	var out mlxc.Array
	err = m.engine.do(func() error {
		if m.model == nil {
			return errModelClosed
		}
		state, err := m.stateOf(cache)
		if err != nil {
			return err
		}
		if cache == nil {
			defer state.Free()
		} else {
			stop = nil
			if err := cache.follow(ids, batch); err != nil {
				return err
			}
		}
		err = m.engine.build(func(s *mlxc.Scope) {
			var tokens mlxc.Array
			if len(ids) > 0 {
				tokens = s.FromInt32s(ids, batch, length)
			}
			out = s.Keep(m.run(s, tokens, embeddings, state, length))
		})
		if err == nil {
			err = m.engine.evaluate(state, batch*length, func() error { return m.abandoned(stop) })
		}
		if err == nil {
			err = mlxc.Eval(out)
		}
		if err != nil {
			out.Free()
			out = mlxc.Array{}
			if cache != nil {
				cache.close() // some of its layers may lack tokens
			}
			return fmt.Errorf("forward of %d tokens: %w", length*batch, err)
		}
		if cache != nil {
			cache.set(state)
		}
		return nil
	})
	return out, err
}

// abandoned tells with an error that nobody waits for a forward any more.
func (m *Model) abandoned(stop *atomic.Bool) error {
	switch {
	case m.engine.leaving():
		return ErrClosed
	case m.closed.Load():
		return errModelClosed
	case stop != nil && stop.Load():
		return errs.Value("the forward was given up")
	}
	return nil
}

// PassStats count the forwards that make tokens.
type PassStats struct {
	Passes   int `json:"passes"`
	Requests int `json:"requests"` // of all passes together: more than passes where some are shared
	Tokens   int `json:"tokens"`   // likewise, drafts and padding included
}

// ModelStats add up what a model's requests did, past and present.
type ModelStats struct {
	Stats
	Requests int               `json:"requests"` // present ones
	Passes   PassStats         `json:"passes"`
	Prefixes *prefix.Stats     `json:"prefixes,omitempty"` // while some are kept
	Ngram    ngram.SharedStats `json:"ngram"`
	// Scheduler counts what the scheduler did for all models together.
	Scheduler scheduler.Stats `json:"scheduler"`
}

// Stats adds up what the model's requests did.
func (m *Model) Stats() (ModelStats, error) {
	var total ModelStats
	err := m.engine.do(func() error {
		total = ModelStats{Stats: m.past, Requests: len(m.live), Passes: m.passes, Ngram: m.shared.Stats(), Scheduler: m.engine.planner.Stats()}
		for _, r := range m.live {
			total.Add(r.count())
		}
		if m.kept != nil {
			st := m.kept.index.Stats()
			total.Prefixes = &st
		}
		return nil
	})
	return total, err
}

// Close ends the model's requests and frees its weights. It may be called more
// than once.
func (m *Model) Close() error {
	m.closed.Store(true)
	err := m.engine.do(func() error {
		for _, r := range m.live {
			m.engine.drop(r, errModelClosed)
		}
		if m.model != nil {
			m.store.Free()
			m.model, m.store = nil, nil
			m.forgetPrefixes()
			m.engine.planner.forget(m)
			m.engine.countKept()
			m.engine.allot()
			return mlxc.ClearCache()
		}
		return nil
	})
	if err == ErrClosed {
		return nil
	}
	return err
}

func (m *Model) checkIDs(ids []int32) error {
	for i, id := range ids {
		if id < 0 || int(id) >= m.vocab {
			return errs.Value("token id %d at position %d is outside the vocabulary of %d", id, i, m.vocab)
		}
	}
	return nil
}
