package engine

import (
	"fmt"

	"axlm/gocore/errs"
	"axlm/gocore/kvcache"
	"axlm/gocore/models"
	"axlm/mlxc"
)

// rowRange is a part of a prompt's embeddings; none with n 0.
type rowRange struct{ from, n int }

// of is the part as [1, n, dim], or none.
func (r rowRange) of(s *mlxc.Scope, embeddings mlxc.Array) mlxc.Array {
	if r.n == 0 || !embeddings.Valid() {
		return mlxc.Array{}
	}
	dim := embeddings.Dim(1)
	return s.Reshape(s.Slice(embeddings, []int{r.from, 0}, []int{r.from + r.n, dim}), 1, r.n, dim)
}

// embeddings are n rows of the prompt's embeddings, if it has some.
func (r *Request) embeddings(from, n int) rowRange {
	if !r.options.Embeddings.Valid() {
		return rowRange{}
	}
	return rowRange{from, n}
}

// forward runs one row of ids, of embeddings, or of both.
func (m *Model) forward(s *mlxc.Scope, ids []int32, embeddings mlxc.Array, cache *kvcache.Cache, rows int) mlxc.Array {
	var tokens mlxc.Array
	if len(ids) > 0 {
		tokens = s.FromInt32s(ids, 1, len(ids))
	}
	return m.run(s, tokens, embeddings, cache, rows)
}

func (m *Model) run(s *mlxc.Scope, tokens, embeddings mlxc.Array, cache *kvcache.Cache, rows int) mlxc.Array {
	if embeddings.Valid() {
		return m.model.Forward(s, models.OneEmbedded(tokens, embeddings, cache, rows))
	}
	return m.model.Forward(s, models.One(tokens, cache, rows))
}

// hidden is the size of an embedding.
func (m *Model) hidden() int { return m.manifest.Description.Dimensions.Hidden }

// promptLength is a prompt's length in tokens, or in embeddings where it has
// some.
func (m *Model) promptLength(ids []int32, embeddings mlxc.Array) (int, error) {
	if !embeddings.Valid() {
		if len(ids) == 0 {
			return 0, errs.Value("prompt: it holds no tokens")
		}
		return len(ids), nil
	}
	if embeddings.NDim() != 2 || embeddings.Dim(0) == 0 || embeddings.Dim(1) != m.hidden() {
		return 0, errs.Value("input_embeddings: want [length, %d], got %s", m.hidden(), embeddings)
	}
	if n := embeddings.Dim(0); len(ids) > 0 && len(ids) != n {
		return 0, errs.Value("input_embeddings: %d rows beside a prompt of %d tokens: want as many, or no prompt", n, len(ids))
	}
	return embeddings.Dim(0), nil
}

// checkInput returns the length of each of batch rows.
func (m *Model) checkInput(ids []int32, batch int, embeddings mlxc.Array) (int, error) {
	if embeddings.Valid() {
		if embeddings.NDim() != 3 || embeddings.Dim(0) != batch || embeddings.Dim(1) == 0 || embeddings.Dim(2) != m.hidden() ||
			(len(ids) > 0 && len(ids) != batch*embeddings.Dim(1)) {
			return 0, errs.Value("input_embeddings: want [batch, length, %d] for %d tokens in %d rows, got %s", m.hidden(), len(ids), batch, embeddings)
		}
		return embeddings.Dim(1), m.checkIDs(ids)
	}
	if len(ids) == 0 || batch < 1 || len(ids)%batch != 0 {
		return 0, errs.Value("tokens: want [batch, length] with at least one token each, got %d tokens in %d rows", len(ids), batch)
	}
	return len(ids) / batch, m.checkIDs(ids)
}

// NewArray makes an evaluated array of its elements' bytes, in row-major order.
// It is the caller's.
func (e *Engine) NewArray(data []byte, dtype mlxc.DType, shape []int) (mlxc.Array, error) {
	var out mlxc.Array
	err := e.do(func() error {
		if err := e.build(func(s *mlxc.Scope) { out = s.Keep(s.Reshape(s.FromBytes(data, dtype), shape...)) }); err != nil {
			return err
		}
		return mlxc.Eval(out)
	})
	if err != nil {
		return mlxc.Array{}, fmt.Errorf("making an array of %d bytes: %w", len(data), err)
	}
	return out, nil
}
