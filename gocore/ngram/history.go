package ngram

const firstWindow = 1024 // tokens a history holds before it first grows

// History is the text of a request: the last tokens of it, at most a fixed number, by absolute position.
// Proposers read it; the speculator alone writes.
type History struct {
	ring   []int32
	mask   int
	window int // most tokens kept, a power of two
	start  int // first position held
	n      int // length of the text
}

// NewHistory returns an empty history that keeps at least the last window tokens (rounded up to a power of two).
func NewHistory(window int) *History {
	w := 1
	for w < window {
		w *= 2
	}
	size := min(w, firstWindow)
	return &History{ring: make([]int32, size), mask: size - 1, window: w}
}

// Len is the number of tokens in the text, those no longer held included.
func (h *History) Len() int { return h.n }

// Start is the first position still held: At works for Start() ≤ i < Len().
func (h *History) Start() int { return h.start }

// Window is the number of positions held at present before old ones give way, a power of two; it grows.
func (h *History) Window() int { return len(h.ring) }

// At returns the token at position i, or -1 where none is held.
func (h *History) At(i int) int32 {
	if i < h.start || i >= h.n {
		return -1
	}
	return h.ring[i&h.mask]
}

// Tail copies the last tokens into dst, the newest last, and returns the part of dst that was filled.
func (h *History) Tail(dst []int32) []int32 {
	k := min(len(dst), h.n-h.start)
	for i := range k {
		dst[i] = h.ring[(h.n-k+i)&h.mask]
	}
	return dst[:k]
}

// Append adds tokens to the text.
func (h *History) Append(tokens ...int32) {
	for _, t := range tokens {
		if h.n-h.start == len(h.ring) {
			if len(h.ring) < h.window {
				h.grow()
			} else {
				h.start++
			}
		}
		h.ring[h.n&h.mask] = t
		h.n++
	}
}

// Truncate cuts the text to n tokens. Below Start nothing is held any more.
func (h *History) Truncate(n int) {
	n = max(n, 0)
	if n >= h.n {
		return
	}
	h.n = n
	h.start = min(h.start, n)
}

func (h *History) grow() { h.resize(2 * len(h.ring)) }

// reserve makes room for n tokens more at once, within the history's window.
func (h *History) reserve(n int) {
	size := len(h.ring)
	for h.n-h.start+n > size && size < h.window {
		size *= 2
	}
	if size > len(h.ring) {
		h.resize(size)
	}
}

func (h *History) resize(size int) {
	ring := make([]int32, size)
	mask := size - 1
	for i := h.start; i < h.n; i++ {
		ring[i&mask] = h.ring[i&h.mask]
	}
	h.ring, h.mask = ring, mask
}

func (h *History) bytes() int { return 4 * cap(h.ring) }
