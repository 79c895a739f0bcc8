package engine

import "axlm/gocore/sampling"

// trail is the random generator's state before and after a request's last
// tokens: taking tokens back takes their draws back, too.
type trail []sampling.Key

// trailLength is how many states stay: more than one pass can be taken back.
const trailLength = 128

// start begins with the state before the first token.
func (t *trail) start(key sampling.Key) { *t = append((*t)[:0], key) }

// advance adds the state after one more token.
func (t *trail) advance(key sampling.Key) {
	if len(*t) >= 2*trailLength {
		*t = append((*t)[:0], (*t)[len(*t)-trailLength:]...)
	}
	*t = append(*t, key)
}

// retract forgets the last n tokens and sets state to what it was before them.
func (t *trail) retract(n int, state *sampling.Key) {
	if n >= len(*t) {
		return // there is nothing before the first token
	}
	*t = (*t)[:len(*t)-n]
	*state = (*t)[len(*t)-1]
}

// replace changes the state after the last token.
func (t trail) replace(key sampling.Key) {
	if len(t) > 0 {
		t[len(t)-1] = key
	}
}
