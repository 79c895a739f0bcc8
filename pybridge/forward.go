package pybridge

import (
	"context"
	"sync/atomic"

	"axlm/mlxc"
)

// Forward begins to run ids, batch rows of equal length, and returns the job's
// handle; JobTake assigns the logits [batch, L, vocab]. options: {"cache": a
// prompt cache to continue, "embeddings": an array in place of the ids' own}.
func Forward(model int, ids []byte, batch int, options string) (int, error) {
	return call(func() (int, error) {
		m, t, err := modelAndTokens(model, ids)
		if err != nil {
			return 0, err
		}
		var o struct {
			Cache      int `json:"cache"`
			Embeddings int `json:"embeddings"`
		}
		if err := decode(options, &o); err != nil {
			return 0, err
		}
		embeddings, err := arrayOf(o.Embeddings)
		if err != nil {
			return 0, err
		}
		cache, err := cacheOf(o.Cache)
		if err != nil {
			embeddings.Free()
			return 0, err
		}
		return begin(func(ctx context.Context) (outcome, error) {
			defer embeddings.Free()
			var stop atomic.Bool
			defer context.AfterFunc(ctx, func() { stop.Store(true) })()
			logits, err := m.Logits(t, batch, embeddings, cache, &stop)
			if err != nil {
				return outcome{}, err
			}
			return outcome{arrays: []mlxc.Array{logits}}, nil
		}), nil
	})
}
