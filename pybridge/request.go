package pybridge

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"axlm/gocore/engine"
	"axlm/gocore/errs"
	"axlm/gocore/kvcache"
	"axlm/gocore/ngram"
	"axlm/gocore/sampling"
	"axlm/mlxc"
)

// What Next returns when there is no token.
const (
	NextPending  = -1
	NextFinished = -2
)

// fromDraft marks, in Next's result, a token that speculation proposed.
const fromDraft = 1 << 32

// requestOptions are Start's, as JSON has them.
type requestOptions struct {
	MaxTokens       int     `json:"max_tokens"`
	PrefillStepSize int     `json:"prefill_step_size"`
	EndTokens       []int32 `json:"end_tokens"`
	Logprobs        bool    `json:"logprobs"`

	ReaderChooses bool                 `json:"reader_chooses"`
	Sampler       *sampling.Sampler    `json:"sampler"`
	Processors    *sampling.Processors `json:"processors"`
	Ngram         json.RawMessage      `json:"ngram"`
	DraftModel    int                  `json:"draft_model"` // a model's handle, 0 for none
	DraftTokens   int                  `json:"num_draft_tokens"`
	DraftCache    int                  `json:"draft_cache"` // a cache's handle

	Cache       int `json:"cache"`
	MaxKVSize   int `json:"max_kv_size"`
	KVBits      int `json:"kv_bits"`
	KVGroupSize int `json:"kv_group_size"`
	KVStart     int `json:"quantized_kv_start"`
	Embeddings  int `json:"embeddings"`
}

// quantised reads the options that say how keys and values are quantised.
func (o *requestOptions) quantised() *engine.QuantisedKV {
	if o.KVBits == 0 {
		return nil
	}
	return &engine.QuantisedKV{Form: kvcache.QuantForm{GroupSize: o.KVGroupSize, Bits: o.KVBits}, Start: o.KVStart}
}

// speculation reads the option "ngram": null or false for plain decoding, true
// for the defaults, or an object of ngram.Config's keys over the defaults.
func (o *requestOptions) speculation() (*ngram.Config, error) {
	c := ngram.DefaultConfig()
	switch text := string(o.Ngram); text {
	case "", "null", "false":
		return nil, nil
	case "true":
		return &c, nil
	}
	if err := decode(string(o.Ngram), &c); err != nil {
		return nil, err
	}
	return &c, nil
}

// draft finds the draft model and its cache; nil for none.
func (o *requestOptions) draft() (*engine.Model, *engine.Cache, error) {
	if o.DraftModel == 0 {
		return nil, nil, nil
	}
	m, err := get(bridge.models, "draft model", o.DraftModel)
	if err != nil {
		return nil, nil, err
	}
	c, err := cacheOf(o.DraftCache)
	return m, c, err
}

// Start begins a generation after ids, little-endian int32, and returns the
// request's handle. options: {"max_tokens" (-1: no limit), "prefill_step_size",
// "end_tokens", "logprobs", "reader_chooses", "sampler", "processors", "ngram",
// "cache" (a prompt cache's handle), "max_kv_size", "kv_bits", "kv_group_size",
// "quantized_kv_start", "embeddings" (an array's handle), "draft_model" (its
// handle), "num_draft_tokens", "draft_cache" (a handle)}; see engine.Options.
func Start(model int, ids []byte, options string) (int, error) {
	return call(func() (int, error) {
		m, t, err := modelAndTokens(model, ids)
		if err != nil {
			return 0, err
		}
		o := requestOptions{MaxTokens: 256, PrefillStepSize: 2048}
		if err := decode(options, &o); err != nil {
			return 0, err
		}
		speculation, err := o.speculation()
		if err != nil {
			return 0, err
		}
		draft, draftCache, err := o.draft()
		if err != nil {
			return 0, err
		}
		cache, err := cacheOf(o.Cache)
		if err != nil {
			return 0, err
		}
		embeddings, err := arrayOf(o.Embeddings)
		if err != nil {
			return 0, err
		}
		r, err := m.Generate(t, engine.Options{
			MaxTokens: o.MaxTokens, PrefillStepSize: o.PrefillStepSize, EndTokens: o.EndTokens, Logprobs: o.Logprobs,
			ReaderChooses: o.ReaderChooses, Sampler: o.Sampler, Processors: o.Processors, Speculation: speculation,
			DraftModel: draft, DraftTokens: o.DraftTokens, DraftCache: draftCache,
			Cache: cache, MaxKVSize: o.MaxKVSize, QuantisedKV: o.quantised(), Embeddings: embeddings,
		})
		if err != nil {
			embeddings.Free()
			return 0, err
		}
		return put(bridge.requests, &open{Request: r}), nil
	})
}

// Next returns the request's next token, plus 1<<32 when speculation proposed
// it, waiting up to waitMs. −1: nothing yet. −2: the request is finished.
func Next(request int, waitMs int) (int, error) {
	return call(func() (int, error) {
		r, err := get(bridge.requests, "request", request)
		if err != nil {
			return 0, err
		}
		t, status, err := r.Request.Next(milliseconds(waitMs))
		switch {
		case err != nil:
			return 0, err
		case status == engine.Pending:
			return NextPending, nil
		case status == engine.Finished:
			return NextFinished, nil
		}
		r.keep(t)
		if t.FromDraft {
			return int(t.ID) + fromDraft, nil
		}
		return int(t.ID), nil
	})
}

// Choose continues a request started with "reader_chooses": each token that
// Next announces is a choice among the logits that Logprobs hands over.
func Choose(request int, token int) (int, error) {
	return call(func() (int, error) {
		r, err := get(bridge.requests, "request", request)
		if err != nil {
			return 0, err
		}
		if token < math.MinInt32 || token > math.MaxInt32 {
			return 0, errs.Value("the chosen token: %d is not a token id", token)
		}
		return 0, r.Request.Choose(int32(token))
	})
}

// Progress tells how many prompt tokens were processed, times 1<<32, plus how
// many there are.
func Progress(request int) (int, error) {
	return call(func() (int, error) {
		r, err := get(bridge.requests, "request", request)
		if err != nil {
			return 0, err
		}
		done, total := r.Request.Progress()
		return done<<32 + total, nil
	})
}

// Logprobs assigns the log probabilities [vocab] of the token that Next
// returned last to the mx.array whose C++ object lies at address. It returns
// their number.
func Logprobs(request int, address int) (int, error) {
	return call(func() (int, error) {
		r, err := get(bridge.requests, "request", request)
		if err != nil {
			return 0, err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.last.Logprobs.Valid() {
			return 0, errs.Value("logprobs: the request does not keep them, or has no token yet")
		}
		if err := mlxc.SetArrayAt(uintptr(address), r.last.Logprobs); err != nil {
			return 0, fmt.Errorf("handing over log probabilities: %w", err)
		}
		return r.last.Logprobs.Size(), nil
	})
}

// Reseed makes the two words of key, high<<32 | low, the state of the request's
// random generator, as a change of mx.random.state means for plain decoding.
func Reseed(request int, key uint64) (int, error) {
	return call(func() (int, error) {
		r, err := get(bridge.requests, "request", request)
		if err != nil {
			return 0, err
		}
		return 0, r.Request.Reseed(sampling.Key{uint32(key >> 32), uint32(key)})
	})
}

// KeyAfter is the state of the random generator, high<<32 | low, in which plain
// decoding leaves it when it yields the token that Next returned last: one draw
// ahead.
func KeyAfter(request int) (uint64, error) {
	return call(func() (uint64, error) {
		r, err := get(bridge.requests, "request", request)
		if err != nil {
			return 0, err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		key := r.Request.Ahead(r.last)
		return uint64(key[0])<<32 | uint64(key[1]), nil
	})
}

// RequestStats begins to count what a request did, and returns the job's
// handle. Its result is JSON.
func RequestStats(request int) (int, error) {
	return call(func() (int, error) {
		r, err := get(bridge.requests, "request", request)
		if err != nil {
			return 0, err
		}
		return begin(func(context.Context) (outcome, error) { return described(r.Request.Stats()) }), nil
	})
}

// Close frees a request. A handle that is closed already is left alone.
func Close(request int) (int, error) {
	return call(func() (int, error) {
		if r, ok := pop(bridge.requests, request); ok {
			r.close()
		}
		return 0, nil
	})
}
