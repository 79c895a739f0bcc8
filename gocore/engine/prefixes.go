package engine

import (
	"slices"

	"axlm/gocore/blocks"
	"axlm/gocore/kvcache"
	"axlm/gocore/prefix"
	"axlm/gocore/scheduler"
	"axlm/mlxc"
)

// prefixes are the beginnings of texts that a model keeps, with the states that
// requests can go on from. It is touched by the engine's thread alone.
type prefixes struct {
	index *prefix.Index
	parts map[uint64]keptPart // by payload
	names uint64
}

func newPrefixes(budget int64) *prefixes {
	return &prefixes{index: prefix.NewIndex(budget), parts: map[uint64]keptPart{}}
}

// keptPart is a payload: states after some tokens; of layers that hold all of
// them those from a position on.
type keptPart struct {
	from   int
	states []kvcache.State
}

func (p keptPart) free() {
	for i := range p.states {
		p.states[i].Free()
	}
}

// chain are the parts that make up the longest match, the first one first; none
// if one is missing.
func (k *prefixes) chain(m prefix.Match) [][]kvcache.State {
	var parts [][]kvcache.State
	at := m.Tokens
	for i := len(m.Payloads) - 1; i >= 0 && at > 0; i-- {
		if m.Ends[i] != at {
			continue
		}
		part := k.parts[m.Payloads[i]]
		parts, at = append(parts, part.states), part.from
	}
	if at > 0 {
		return nil
	}
	slices.Reverse(parts)
	return parts
}

// KeepPrefixes lets the model keep the states of prompts and answers, in so many
// bytes; 0 for none. It does not wait for the engine.
func (m *Model) KeepPrefixes(bytes int) error {
	if m.closed.Load() {
		return errModelClosed
	}
	return m.engine.post(func() {
		switch {
		case m.model == nil:
		case bytes <= 0:
			m.forgetPrefixes()
		case m.kept == nil:
			m.kept = newPrefixes(int64(bytes))
		default:
			m.kept.index.SetBudget(int64(bytes))
		}
		m.engine.countKept()
	})
}

func (m *Model) forgetPrefixes() {
	if m.kept == nil {
		return
	}
	for _, part := range m.kept.parts {
		part.free()
	}
	m.kept = nil
}

// countKept frees what the indices dropped, and tells what the rest takes.
func (e *Engine) countKept() {
	bytes := int64(0)
	for m := range e.planner.sizes {
		if k := m.kept; k != nil {
			for _, name := range k.index.Dropped() {
				k.parts[name].free()
				delete(k.parts, name)
			}
			bytes += k.index.Bytes()
		}
	}
	if bytes != e.keptBytes {
		e.keptBytes = bytes
		e.planner.tell(scheduler.Event{Kind: scheduler.Kept, Bytes: bytes})
	}
}

// reclaim gives kept prefixes up for so many bytes.
func (e *Engine) reclaim(bytes int64) {
	if bytes <= 0 {
		return
	}
	for m := range e.planner.sizes {
		if m.kept == nil || bytes <= 0 {
			continue
		}
		had := m.kept.index.Bytes()
		m.kept.index.Shrink(max(0, had-bytes))
		bytes -= had - m.kept.index.Bytes()
	}
	e.keptBytes = -1 // the scheduler has counted it off already: what is left is told anew
	e.countKept()
}

// keeps tells whether states of the request's text may be kept: those of tokens
// alone, from the first one on, in a cache that any request could have.
func (r *Request) keeps() bool {
	return r.model.kept != nil && r.before == 0 && !r.embedded && r.options.QuantisedKV == nil && r.cache.Keeps()
}

// reuse gives a request that joins the longest beginning of its text that is
// kept, and tells how many tokens that are.
func (e *Engine) reuse(r *Request) (int, error) {
	if !r.keeps() || r.cache.Offset() > 0 {
		return r.cache.Offset(), nil
	}
	k := r.model.kept
	match := k.index.Lookup("", r.text)
	if match.Tokens == 0 {
		return 0, nil
	}
	defer k.index.Release(&match)
	parts := k.chain(match)
	if parts == nil {
		return 0, nil
	}
	if err := e.try(func(s *mlxc.Scope) error { return r.cache.Restore(s, parts) }); err != nil {
		return 0, err
	}
	r.keptTo, r.stats.ReusedTokens = match.Tokens, r.stats.ReusedTokens+match.Tokens
	r.filled.Store(max(r.filled.Load(), int64(min(match.Tokens, r.total))))
	return match.Tokens, mlxc.Eval(r.cache.Arrays()...)
}

// stop is where a part of a prompt from a position on must end so that its state
// can be kept, end if anywhere.
func (r *Request) stop(from, end int) int {
	if !r.keeps() || !r.cache.Whole() {
		return end
	}
	if all := prefix.Checkpoints(from, len(r.prompt)); len(all) > 0 {
		return min(all[0], end)
	}
	return end
}

// keep keeps the states at the checkpoints that the request has passed.
func (e *Engine) keep(r *Request) error {
	if !r.keeps() || r.cache.Offset() <= r.keptTo {
		return nil
	}
	held := min(r.cache.Offset(), len(r.text)-1)
	for _, p := range r.checkpoints(held) {
		if err := e.keepAt(r, p); err != nil {
			return err
		}
	}
	e.countKept()
	return nil
}

// checkpoints are the positions up to held at which states are kept now.
func (r *Request) checkpoints(held int) []int {
	end := held / blocks.Size * blocks.Size
	if r.cache.Whole() {
		if held == end && held > r.keptTo {
			return []int{held}
		}
		return nil
	}
	return prefix.Checkpoints(r.keptTo, end+1)
}

func (e *Engine) keepAt(r *Request, position int) error {
	k := r.model.kept
	if k.index.Known("", r.text[:position]) {
		r.keptTo = position
		return nil
	}
	part := keptPart{from: r.keptTo}
	ok := true
	err := e.build(func(s *mlxc.Scope) { part.states, ok = r.cache.Keep(s, part.from, position) })
	if err != nil || !ok {
		return err
	}
	var arrays []mlxc.Array
	bytes := int64(0)
	for _, st := range part.states {
		for _, a := range st.Arrays {
			arrays = append(arrays, a)
			bytes += int64(a.NBytes())
		}
	}
	if err := mlxc.Eval(arrays...); err != nil {
		part.free()
		return err
	}
	k.names++
	if !k.index.Insert("", r.text[:position], k.names, bytes) {
		part.free() // there is no room
		return nil
	}
	k.parts[k.names] = part
	r.keptTo = position
	return nil
}
