package ngram

import "math/bits"

const (
	firstEntries  = 256 // entries a table starts with
	probeWindow   = 8   // places where a context may stand
	continuations = 4   // next tokens remembered for a context
	entryBytes    = 64
	journalled    = 64 // sightings that can be taken back
)

// continuation is a token seen after a context.
type continuation struct {
	token              int32
	last               uint32 // position of the latest sighting, modulo 2³²
	count              uint16 // 0: free
	accepted, rejected uint8
}

// entry is one context with its continuations: 64 bytes, a cache line.
type entry struct {
	key   uint64 // 0: free
	used  uint32 // position of the latest sighting, modulo 2³²
	total uint32 // sightings, of continuations since replaced too
	next  [continuations]continuation
}

// table maps contexts to continuations by open addressing. A context stands in one of the probeWindow places from its
// hash on; when all are taken the one not seen for longest gives way, so lookups and memory are bounded.
type table struct {
	entries []entry
	most    int // entries at full growth, a power of two
	filled  int
	shift   int
	journal [journalled]change // of the latest sightings, a ring
	next    int                // its next slot
	held    int                // its changes that still hold
}

// change is what one sighting did.
type change struct {
	at  int
	old entry
}

func newTable(most int) *table {
	t := &table{most: most}
	t.reset()
	return t
}

func (t *table) reset() {
	n := min(firstEntries, t.most)
	t.entries, t.filled, t.held = make([]entry, n), 0, 0
	t.shift = 64 - bits.TrailingZeros(uint(n))
}

// home is the first place of a key, which is mixed well already: its high bits spread evenly.
func (t *table) home(key uint64) int { return int(key >> t.shift) }

// find returns the index of key's entry, or -1.
func (t *table) find(key uint64) int {
	at, mask := t.home(key), len(t.entries)-1
	for i := range probeWindow {
		switch j := (at + i) & mask; t.entries[j].key {
		case key:
			return j
		case 0:
			return -1
		}
	}
	return -1
}

// observe counts one sighting of token after the context key, at position pos.
func (t *table) observe(key uint64, token int32, pos int) {
	now := uint32(pos)
	if t.filled > len(t.entries)/8*5 && len(t.entries) < t.most {
		t.grow(now)
	}
	at := t.place(key, now)
	e := &t.entries[at]
	t.journal[t.next] = change{at, *e}
	t.next = (t.next + 1) % journalled
	t.held = min(t.held+1, journalled)
	if e.key != key {
		if e.key == 0 {
			t.filled++
		}
		*e = entry{key: key}
	}
	e.used = now
	e.total++
	e.count(token, now)
}

// undo takes back the last n sightings; false, and nothing done, if not so many are journalled.
func (t *table) undo(n int) bool {
	if n > t.held {
		return false
	}
	t.held -= n
	for range n {
		t.next = (t.next + journalled - 1) % journalled
		c := &t.journal[t.next]
		t.entries[c.at] = c.old
		if c.old.key == 0 {
			t.filled--
		}
	}
	return true
}

// place is where key stands or may stand.
func (t *table) place(key uint64, now uint32) int {
	at, mask := t.home(key), len(t.entries)-1
	oldest, age := at&mask, uint32(0)
	for i := range probeWindow {
		j := (at + i) & mask
		e := &t.entries[j]
		if e.key == key || e.key == 0 {
			return j
		}
		if a := now - e.used; a > age {
			oldest, age = j, a
		}
	}
	return oldest
}

func (t *table) grow(now uint32) { t.resize(2*len(t.entries), now) }

// reserve makes room for n contexts more at once, within the table's bound.
func (t *table) reserve(n int, now uint32) {
	size := len(t.entries)
	for t.filled+n > size/8*5 && size < t.most {
		size *= 2
	}
	if size > len(t.entries) {
		t.resize(size, now)
	}
}

func (t *table) resize(size int, now uint32) {
	old := t.entries
	t.entries = make([]entry, size)
	t.shift = 64 - bits.TrailingZeros(uint(size))
	t.filled, t.held = 0, 0 // places have changed, so nothing journalled holds
	for i := range old {
		if old[i].key == 0 {
			continue
		}
		e := &t.entries[t.place(old[i].key, now)]
		if e.key == 0 {
			t.filled++
		}
		*e = old[i]
	}
}

// count counts a sighting; a new token takes the place of the one seen least, the older of equals.
func (e *entry) count(token int32, pos uint32) {
	weakest := 0
	for i := range e.next {
		c := &e.next[i]
		if c.count == 0 {
			*c = continuation{token: token, last: pos, count: 1}
			return
		}
		if c.token == token {
			c.last = pos
			if c.count++; c.count == 1<<16-1 {
				e.halve()
			}
			return
		}
		w := &e.next[weakest]
		if c.count < w.count || c.count == w.count && pos-c.last > pos-w.last {
			weakest = i
		}
	}
	e.next[weakest] = continuation{token: token, last: pos, count: 1}
}

func (e *entry) halve() {
	e.total /= 2
	for i := range e.next {
		if e.next[i].count > 1 {
			e.next[i].count /= 2
		}
	}
}

// best is the continuation to draft among those seen at least support times, with an estimate of its acceptance:
// the share of sightings, with what came of earlier drafts counted as sightings too and the latest one as half a
// sighting more. nil if there is none.
func (e *entry) best(support int, now uint32) (*continuation, float32) {
	latest, age := 0, ^uint32(0)
	for i := range e.next {
		if c := &e.next[i]; c.count > 0 && now-c.last < age {
			latest, age = i, now-c.last
		}
	}
	var found *continuation
	var high float32
	for i := range e.next {
		c := &e.next[i]
		if c.count == 0 || int(c.count) < support {
			continue
		}
		score := float32(c.count) + float32(c.accepted)
		if i == latest {
			score += 0.5
		}
		if p := score / (float32(e.total) + float32(c.accepted) + float32(c.rejected) + 1); p > high {
			found, high = c, p
		}
	}
	return found, high
}

// credit books what became of a drafted continuation.
func (t *table) credit(at int, key uint64, token int32, accepted bool) {
	// The table may have changed since the draft: what no longer stands there is not credited.
	if at >= len(t.entries) || t.entries[at].key != key {
		if at = t.find(key); at < 0 {
			return
		}
	}
	for i := range t.entries[at].next {
		c := &t.entries[at].next[i]
		if c.count == 0 || c.token != token {
			continue
		}
		if accepted {
			c.accepted++
		} else {
			c.rejected++
		}
		if c.accepted == 255 || c.rejected == 255 {
			c.accepted, c.rejected = c.accepted/2, c.rejected/2
		}
		return
	}
}

func (t *table) bytes() int { return len(t.entries) * entryBytes }

// mix spreads a 64-bit value over all bits, one to one.
func mix(x uint64) uint64 {
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	return x
}
