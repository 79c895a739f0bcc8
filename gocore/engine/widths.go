package engine

import (
	"fmt"
	"slices"
	"time"

	"axlm/gocore/models"
	"axlm/gocore/ngram"
	"axlm/mlxc"
)

// passWidths are the rows that a verifying pass may have on a GPU. Each other
// number would be compiled or planned for at its first use, which takes as long
// as many steps.
var passWidths = [...]int{2, 4, 8, 16, 32}

// fit brings a decision to one of the widths: by padding, or by leaving out a
// few drafts where that is the smaller change.
func fit(d ngram.Decision) ngram.Decision {
	rows := len(d.Drafts) + 1
	if rows == 1 {
		return d
	}
	at, exact := slices.BinarySearch(passWidths[:], rows)
	switch {
	case exact:
		d.Width = max(rows, passWidths[at])
	case at == len(passWidths), at > 0 && rows-passWidths[at-1] <= passWidths[at-1]/8:
		d.Width = passWidths[at-1]
		d.Drafts = d.Drafts[:d.Width-1]
	default:
		d.Width = passWidths[at]
	}
	return d
}

// stride is how many of n tokens a forward outside a prompt takes: all, or on a
// GPU as many as the widest pass that was warmed up.
func (e *Engine) stride(n int) int {
	if !e.warm || n > 4*passWidths[len(passWidths)-1] {
		return n
	}
	width := 1
	for _, w := range passWidths {
		if w <= n {
			width = w
		}
	}
	return width
}

// padded is the narrowest width that holds rows, 0 for none.
func padded(rows int) int {
	for _, w := range passWidths {
		if w >= rows {
			return w
		}
	}
	return 0
}

// rounds are how often a width is run when it is warmed up; the first of them
// compile and plan, and are not timed.
const (
	coldRounds  = 2
	timedRounds = 3
)

// warmUp runs a pass of each width on a state that is thrown away, so that no
// request pays for what the backend does at the first use of a shape, and the
// model's requests know from the start what verifying costs, which record is
// told. Each pass is a step of its own on the engine's thread, which other
// requests share.
func (e *Engine) warmUp(model models.Model, step func(func() error) error, record func(width int, seconds float64)) error {
	cache := model.NewCache(models.CacheOptions{PadViews: e.padViews})
	defer func() {
		_ = e.do(func() error { // a closed engine has given all memory back
			cache.Free()
			return mlxc.ClearCache()
		})
	}()
	ids := make([]int32, passWidths[len(passWidths)-1])
	for _, width := range append([]int{1}, passWidths[:]...) {
		for round := range coldRounds + timedRounds {
			err := step(func() error {
				cache.Checkpoint()
				seconds, err := e.timed(func(s *mlxc.Scope) mlxc.Array {
					logits := model.Forward(s, models.One(s.FromInt32s(ids[:width], 1, width), cache, width))
					return s.ArgMax(s.Subtract(logits, s.LogSumExp(logits, -1, true)), -1, false)
				})
				if err != nil {
					return err
				}
				// A plain step is queued ahead, which this one was not.
				if width > 1 && round >= coldRounds {
					record(width, seconds)
				}
				return e.rollback(cache, 0)
			})
			if err != nil {
				return fmt.Errorf("warming up passes of %d tokens: %w", width, err)
			}
		}
	}
	return nil
}

// timed builds and evaluates a graph and tells how long both took.
func (e *Engine) timed(graph func(s *mlxc.Scope) mlxc.Array) (float64, error) {
	started := time.Now()
	var out mlxc.Array
	if err := e.build(func(s *mlxc.Scope) { out = s.Keep(graph(s)) }); err != nil {
		return 0, err
	}
	defer out.Free()
	if err := mlxc.Eval(out); err != nil {
		return 0, err
	}
	return time.Since(started).Seconds(), nil
}
