package engine

import (
	"time"

	"axlm/gocore/kvcache"
	"axlm/mlxc"
)

// Parts of a long forward take about this long: a request, a model or the
// process that is given up is let go after one of them.
const (
	shortPart = 50 * time.Millisecond
	longPart  = 200 * time.Millisecond
)

// evaluate computes what a forward over rows tokens left in the cache. It does
// so a few layers at a time, and asks stop between them; an error of stop ends
// it there, with the cache of no more use.
func (e *Engine) evaluate(cache *kvcache.Cache, rows int, stop func() error) error {
	return e.evaluateAll([]*kvcache.Cache{cache}, rows, stop)
}

// evaluateAll is evaluate for the caches, of one model, that a forward extended.
func (e *Engine) evaluateAll(caches []*kvcache.Cache, rows int, stop func() error) error {
	layers := len(caches[0].Layers)
	part := layers
	for from := 0; from < layers; {
		if rows >= partRows {
			if err := stop(); err != nil {
				return err
			}
			part = e.part
		}
		to := min(from+part, layers)
		var arrays []mlxc.Array
		for _, c := range caches {
			for _, l := range c.Layers[from:to] {
				arrays = append(arrays, l.Arrays()...)
			}
		}
		started := time.Now()
		if err := mlxc.Eval(arrays...); err != nil {
			return err
		}
		switch took := time.Since(started); {
		case rows < partRows:
		case took < shortPart && to-from == e.part:
			e.part = min(2*e.part, maxPart)
		case took > longPart:
			e.part = max(1, e.part/2)
		}
		from = to
	}
	return nil
}

const (
	partRows = 64  // forwards over fewer rows are computed at once
	maxPart  = 128 // layers
)

// wanted tells with an error that nobody waits for what the request computes.
// A borrowed cache is still waited for when its reader is gone.
func (r *Request) wanted() error {
	switch {
	case r.engine.leaving():
		return ErrClosed
	case r.model.closed.Load():
		return errModelClosed
	case r.borrowed == nil && r.closed.Load():
		return errRequestClosed
	}
	return nil
}
