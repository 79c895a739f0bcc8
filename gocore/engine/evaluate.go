package engine

import (
	"time"

	"axlm/gocore/kvcache"
	"axlm/mlxc"
)

// aPart is about how long a part of a long forward takes: a request, a model or
// the process that is given up is let go after one of them.
const aPart = 100 * time.Millisecond

// pace is what long forwards took lately: seconds for a token in a layer, and
// of how many tokens they were.
type pace struct {
	seconds float64
	rows    int
}

// layers is how many layers of a forward over rows tokens are computed at once.
// What a much shorter forward took says little: attention grows with the square.
func (p pace) layers(rows int) int {
	if p.seconds == 0 || rows > 2*p.rows {
		return 1
	}
	return int(min(max(aPart.Seconds()/(p.seconds*float64(rows)), 1), maxPart))
}

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
			part = e.pace.layers(rows)
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
		if rows >= partRows {
			e.pace = pace{time.Since(started).Seconds() / float64(rows*(to-from)), rows}
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
