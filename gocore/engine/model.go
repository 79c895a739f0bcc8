package engine

import (
	"fmt"
	"sync/atomic"

	"axlm/gocore/errs"
	"axlm/gocore/models"
	"axlm/gocore/ngram"
	"axlm/gocore/nn"
	"axlm/gocore/weights"
	"axlm/mlxc"
)

var errModelClosed = errs.Value("the model is closed")

// Model is a loaded model folder.
type Model struct {
	Folder *weights.Folder

	engine   *Engine
	closed   atomic.Bool
	manifest *weights.Manifest
	vocab    int
	layers   int
	shared   *ngram.Shared // what requests of the model learn from each other
	// recurrent says that the state cannot go back by moving a length.
	recurrent  bool
	drafted    int // length of text up to which drafts may be verified, 0 for any
	bytes      int
	parameters int

	// What follows is touched by the engine's thread alone.
	model models.Model
	store *nn.Store
	live  map[uint64]*Request
	past  Stats // of requests that are gone
}

// Bytes counts what the weights take in memory.
func (m *Model) Bytes() int { return m.bytes }

// VocabSize counts the token ids that the model knows.
func (m *Model) VocabSize() int { return m.vocab }

// Logits runs ids, batch rows of equal length, without a cache, and returns
// the logits [batch, L, vocab], evaluated. The array is the caller's.
func (m *Model) Logits(ids []int32, batch int) (mlxc.Array, error) {
	if len(ids) == 0 || batch < 1 || len(ids)%batch != 0 {
		return mlxc.Array{}, errs.Value("tokens: want [batch, length] with at least one token each, got %d tokens in %d rows", len(ids), batch)
	}
	if err := m.checkIDs(ids); err != nil {
		return mlxc.Array{}, err
	}
	var out mlxc.Array
	err := m.engine.do(func() error {
		if m.model == nil {
			return errModelClosed
		}
		cache := m.model.NewCache(models.CacheOptions{})
		defer cache.Free()
		length := len(ids) / batch
		err := m.engine.build(func(s *mlxc.Scope) {
			out = s.Keep(m.model.Forward(s, s.FromInt32s(ids, batch, length), cache, length))
		})
		if err == nil {
			err = mlxc.Eval(out)
		}
		if err != nil {
			out.Free()
			out = mlxc.Array{}
			return fmt.Errorf("forward of %d tokens: %w", len(ids), err)
		}
		return nil
	})
	return out, err
}

// ModelStats add up what a model's requests did, past and present.
type ModelStats struct {
	Stats
	Requests int               `json:"requests"` // present ones
	Ngram    ngram.SharedStats `json:"ngram"`
}

// Stats adds up what the model's requests did.
func (m *Model) Stats() (ModelStats, error) {
	var total ModelStats
	err := m.engine.do(func() error {
		total = ModelStats{Stats: m.past, Requests: len(m.live), Ngram: m.shared.Stats()}
		for _, r := range m.live {
			total.Add(r.count())
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
