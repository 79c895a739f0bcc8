package scheduler

import (
	"cmp"
	"math/bits"
	"slices"
)

// BlockTokens is how many tokens a block has, the unit of what is kept and told.
const BlockTokens = 16

// class is a kind of request: those of one class share passes and banks.
type class struct {
	id         uint32
	tokenBytes int64
	slotBytes  int64
	pad, width int
	solo       bool
	users      int
	costs      *costs
}

// bytes is what one slot for keys tokens takes.
func (c *class) bytes(keys int) int64 { return int64(keys+c.pad)*c.tokenBytes + c.slotBytes }

// bank is a row of slots of one capacity.
type bank struct {
	class *class
	owner uint64 // of a solo class
	keys  int
	slots []*sequence
	used  int
}

func (b *bank) at(i int) Slot { return Slot{b.class.id, b.owner, b.keys, i} }

func (b *bank) bytes(slots int) int64 { return int64(slots) * b.class.bytes(b.keys) }

func (b *bank) free() int { return slices.Index(b.slots, nil) }

func (b *bank) take(q *sequence, i int) {
	b.slots[i] = q
	b.used++
	q.bank, q.slot = b, i
}

func (b *bank) release(q *sequence) {
	if b == nil {
		return
	}
	b.slots[q.slot] = nil
	b.used--
	q.bank = nil
}

// memory is the ledger of what caches take.
type memory struct {
	budget  int64
	kept    int64 // kept prefixes, as last told, less what was reclaimed since
	charged int64 // all banks
	peak    int64 // the most at any time, old and new buffers of a copy together
	banks   []*bank
}

func order(b *bank, c *class, owner uint64, keys int) int {
	return cmp.Or(cmp.Compare(b.class.id, c.id), cmp.Compare(b.owner, owner), cmp.Compare(b.keys, keys))
}

func (m *memory) find(c *class, owner uint64, keys int) (int, bool) {
	return slices.BinarySearchFunc(m.banks, struct{}{}, func(b *bank, _ struct{}) int { return order(b, c, owner, keys) })
}

func (m *memory) has(c *class) bool {
	return slices.ContainsFunc(m.banks, func(b *bank) bool { return b.class == c })
}

// keysFor is the capacity of a slot for need tokens: a power of two, or, where
// the budget would not take that alone, whole blocks up to the budget. 0: none.
func (s *Scheduler) keysFor(c *class, need int) int {
	if c.tokenBytes == 0 {
		// Such states do not grow with the text.
		if c.slotBytes > s.memory.budget {
			return 0
		}
		return 2 * MaxTokens
	}
	keys := max(need, s.cfg.MinKeys)
	keys = 1 << bits.Len(uint(keys-1))
	if c.bytes(keys) <= s.memory.budget {
		return keys
	}
	most := (s.memory.budget-c.slotBytes)/c.tokenBytes - int64(c.pad)
	if most < int64(need) {
		return 0
	}
	most = min(most, int64(keys))
	if whole := most / BlockTokens * BlockTokens; whole >= int64(need) {
		most = whole
	}
	return int(most)
}

// resize changes a bank's number of slots, if old and new fit the budget
// together; reclaim tells whether kept prefixes may go for it.
func (s *Scheduler) resize(b *bank, slots int, reclaim bool) bool {
	m := &s.memory
	var added int64 // a bank that goes is not copied
	if slots > 0 {
		added = b.bytes(slots)
	}
	if over := m.charged + added + m.kept - m.budget; over > 0 && slots > 0 {
		if !reclaim || over > m.kept {
			return false
		}
		m.kept -= over
		s.plan.Reclaim += over
		s.stats.Reclaimed += uint64(over)
	}
	m.peak = max(m.peak, m.charged+added)
	m.charged += added - b.bytes(len(b.slots))
	s.plan.Changes = append(s.plan.Changes, Change{Op: Resize, At: b.at(0), From: len(b.slots), To: slots})
	for len(b.slots) < slots {
		b.slots = append(b.slots, nil)
	}
	b.slots = b.slots[:slots]
	if slots == 0 {
		if i, ok := m.find(b.class, b.owner, b.keys); ok {
			m.banks = slices.Delete(m.banks, i, i+1)
		}
	}
	return true
}

// acquire finds a free slot for q, growing its bank where the budget allows it.
// more requests are expected for the same bank.
func (s *Scheduler) acquire(q *sequence, keys, more int) (*bank, int) {
	m := &s.memory
	owner := uint64(0)
	if q.class.solo {
		owner, more = q.id, 0
	}
	at, ok := m.find(q.class, owner, keys)
	if !ok {
		m.banks = slices.Insert(m.banks, at, &bank{class: q.class, owner: owner, keys: keys})
	}
	b := m.banks[at]
	if i := b.free(); i >= 0 {
		return b, i
	}
	least := len(b.slots) + 1
	for _, slots := range [...]int{ceil2(least + more), ceil2(least), least} {
		if slots <= ceil2(s.cfg.Slots) && s.resize(b, slots, slots == least) {
			return b, b.free()
		}
	}
	if len(b.slots) == 0 {
		m.banks = slices.Delete(m.banks, at, at+1)
	}
	return nil, 0
}

func ceil2(n int) int { return 1 << bits.Len(uint(n-1)) }

// shrink gives up empty banks, and slots that nobody uses of others; keep is how
// many slots a bank of some may keep.
func (s *Scheduler) shrink(keep func(*bank) int) (changed bool) {
	for i := len(s.memory.banks) - 1; i >= 0; i-- {
		b := s.memory.banks[i]
		if slots := keep(b); slots < len(b.slots) && s.shrinkBank(b, slots) {
			changed = true
		}
	}
	return changed
}

func (s *Scheduler) shrinkBank(b *bank, slots int) bool {
	m := &s.memory
	if slots > 0 && m.charged+b.bytes(slots) > m.budget-m.kept {
		return false
	}
	for i := slots; i < len(b.slots); i++ {
		if q := b.slots[i]; q != nil {
			s.move(q, b, b.free())
		}
	}
	return s.resize(b, slots, false)
}

func (s *Scheduler) move(q *sequence, to *bank, slot int) {
	from := q.place()
	q.bank.release(q)
	to.take(q, slot)
	for i := range s.plan.Joins { // joins come after all changes: there is nothing to move yet
		if s.plan.Joins[i].ID == q.id {
			s.plan.Joins[i].Slot = to.at(slot)
			return
		}
	}
	s.plan.Changes = append(s.plan.Changes, Change{Op: Move, ID: q.id, At: from, Into: to.at(slot)})
	s.stats.Moves++
}

// preempt takes a request's slot; it joins again in its turn.
func (s *Scheduler) preempt(q *sequence) {
	s.plan.Changes = append(s.plan.Changes, Change{Op: Preempt, ID: q.id, At: q.place()})
	q.bank.release(q)
	s.running = without(s.running, q)
	s.queue = inserted(s.queue, q)
	s.become(q, Preempted)
	s.stats.Preemptions++
	s.stats.Recomputed += uint64(q.cached)
	q.cached, q.reused, q.again = 0, 0, true
}

// victim is whom to preempt for q: of the parked requests the youngest, else the
// youngest that is younger than q. Nobody but the parked goes for a nil q.
func (s *Scheduler) victim(q *sequence) *sequence {
	for i := len(s.running) - 1; i >= 0; i-- {
		if v := s.running[i]; v.parked && v != q {
			return v
		}
	}
	if n := len(s.running); q != nil && n > 0 && s.running[n-1].order > q.order {
		return s.running[n-1]
	}
	return nil
}

func exact(b *bank) int { return b.used }

// obtain is acquire that takes from others.
func (s *Scheduler) obtain(q *sequence, keys, more int, victims bool) (*bank, int) {
	for {
		if b, i := s.acquire(q, keys, more); b != nil {
			return b, i
		}
		if s.shrink(exact) {
			continue
		}
		var older *sequence
		if victims {
			older = q
		}
		v := s.victim(older)
		if v == nil {
			return nil, 0
		}
		s.preempt(v)
	}
}

// shrinkToBudget makes what is charged fit a budget that became smaller.
func (s *Scheduler) shrinkToBudget() {
	m := &s.memory
	for {
		over := m.charged + m.kept - m.budget
		if over <= 0 {
			return
		}
		if gone := min(over, m.kept); gone > 0 {
			m.kept -= gone
			s.plan.Reclaim += gone
			s.stats.Reclaimed += uint64(gone)
			continue
		}
		// Nothing can be copied over the budget: banks go whole.
		if s.shrink(func(b *bank) int {
			if b.used == 0 {
				return 0
			}
			return len(b.slots)
		}) {
			continue
		}
		v := s.victim(nil)
		if v == nil {
			v = s.running[len(s.running)-1]
		}
		s.preempt(v)
	}
}

// grow moves rows that are at their slot's end to a longer one, the oldest first.
func (s *Scheduler) grow() {
	for i := 0; i < len(s.running); {
		q := s.running[i]
		s.grown(q)
		i = after(s.running, q.order) // others may have left
	}
}

// after is the index of the first request younger than order.
func after(list []*sequence, order uint64) int {
	i, ok := find(list, order)
	if ok {
		i++
	}
	return i
}

// grown makes room for a row's next pass, or preempts it.
func (s *Scheduler) grown(q *sequence) {
	if q.parked || q.total+q.drafts() <= q.bank.keys {
		return
	}
	for _, need := range [...]int{q.total + q.drafts(), q.total} {
		if need <= q.bank.keys {
			return // its drafts are cut to the room
		}
		keys := s.keysFor(q.class, need)
		if keys <= q.bank.keys {
			continue
		}
		// Only for the token that it must have do others give way.
		get := func() (*bank, int) { return s.acquire(q, keys, 0) }
		if need == q.total {
			get = func() (*bank, int) { return s.obtain(q, keys, 0, true) }
		}
		if b, slot := get(); b != nil {
			s.move(q, b, slot)
			return
		}
	}
	s.preempt(q) // without its own slot it may fit
}

// join lets the queue in, in order.
func (s *Scheduler) join() {
	for i := 0; i < len(s.queue) && len(s.running) < s.cfg.Slots; {
		q := s.queue[i]
		if !q.wanted() {
			i++
			continue
		}
		if s.admitted(q) {
			continue // it left the queue
		}
		if q.state != Blocked {
			s.become(q, Blocked)
			s.stats.Blocked++
		}
		return
	}
}

// admitted gives a request a slot, or ends it if none can ever be; false if it
// has to wait.
func (s *Scheduler) admitted(q *sequence) bool {
	if s.keysFor(q.class, q.total) == 0 {
		s.plan.Failed = append(s.plan.Failed, Failure{q.id, q.class.bytes(q.total), s.memory.budget, q.total})
		s.stats.Failed++
		s.end(q, Failed)
		return true
	}
	for _, need := range [...]int{q.total + s.headroom(q), q.total} {
		keys := s.keysFor(q.class, need)
		if keys == 0 {
			continue
		}
		if b, slot := s.obtain(q, keys, s.alike(q, keys), false); b != nil {
			s.seat(q, b, slot)
			return true
		}
	}
	return false
}

// headroom is how many tokens to come a joining request gets room for.
func (s *Scheduler) headroom(q *sequence) int {
	if q.remaining == Unlimited {
		return s.cfg.Headroom
	}
	return min(s.cfg.Headroom, max(0, q.remaining-1)) // the last token is never cached
}

// alike counts the requests that wait with q for a slot of its kind, which its
// bank can grow for at once.
func (s *Scheduler) alike(q *sequence, keys int) int {
	n := 0
	for _, o := range s.queue {
		if o != q && o.class == q.class && o.wanted() && s.keysFor(o.class, o.total+s.headroom(o)) == keys {
			n++
		}
	}
	return min(n, s.cfg.Slots-len(s.running)-1)
}

func (s *Scheduler) seat(q *sequence, b *bank, slot int) {
	s.queue = without(s.queue, q)
	s.running = inserted(s.running, q)
	b.take(q, slot)
	q.cached, q.fresh, q.served = q.reused, true, s.step
	s.plan.Joins = append(s.plan.Joins, Join{q.id, b.at(slot), q.total, q.reused, q.again})
	s.stats.Joins++
	s.stats.Reused += uint64(q.reused)
	s.settle(q)
}

// tidy gives memory back that nobody needs now: empty banks, and three quarters
// of a bank that is hardly used.
func (s *Scheduler) tidy() {
	waits := len(s.queue) > 0
	s.shrink(func(b *bank) int {
		switch {
		case b.used == 0:
			return 0
		case !waits && 4*b.used <= len(b.slots):
			return ceil2(2 * b.used)
		}
		return len(b.slots)
	})
}
