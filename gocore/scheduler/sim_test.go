package scheduler

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// planner is a Scheduler or a Recorder.
type planner interface {
	Apply(Event) error
	Next(Budget) *Plan
}

// life is what a simulated engine knows of a request, kept apart from the
// scheduler's own books.
type life struct {
	order                     int
	slot                      *Slot
	cached, total, max, given int
	credit                    int
	parked                    bool
	waits                     int // steps ready, but in no pass
}

// world is a simulated engine. It executes plans and checks them.
type world struct {
	p       planner
	s       *Scheduler
	r       *rand.Rand
	lives   map[uint64]*life
	banks   map[Slot]int // slots, by bank
	holds   map[Slot]uint64
	budget  int64
	kept    int64
	nextID  uint64
	events  int
	tokens  int
	failed  int
	widest  int
	classes []Event
}

func newWorld(p planner, s *Scheduler, seed uint64, budget int64) *world {
	w := &world{p: p, s: s, r: rand.New(rand.NewPCG(seed, 1)), lives: map[uint64]*life{}, banks: map[Slot]int{},
		holds: map[Slot]uint64{}, tokens: 256}
	w.classes = []Event{{Kind: Define, Class: 0, Bytes: 8, Width: 16, Pad: 32}, {Kind: Define, Class: 1, Bytes: 3, SlotBytes: 1000, Width: 4},
		{Kind: Define, Class: 2, Bytes: 8, Solo: true}, {Kind: Define, Class: 3, SlotBytes: 3000, Width: 8}}
	for _, c := range w.classes {
		w.must(c)
	}
	w.setBudget(budget)
	return w
}

func (w *world) must(e Event) {
	w.events++
	if err := w.p.Apply(e); err != nil {
		panic(fmt.Sprintf("%+v: %v", e, err))
	}
}

func (w *world) setBudget(b int64) {
	w.budget = b
	w.must(Event{Kind: Memory, Bytes: b})
}

func bankOf(s Slot) Slot { s.Index = 0; return s }

func (w *world) slotBytes(s Slot) int64 {
	c := w.classes[s.Class]
	return int64(s.Keys+c.Pad)*c.Bytes + c.SlotBytes
}

func (w *world) charged() (sum int64) {
	for b, n := range w.banks {
		sum += int64(n) * w.slotBytes(b)
	}
	return sum
}

func (w *world) leave(t *testing.T, id uint64, slot Slot) {
	t.Helper()
	if w.holds[slot] != id {
		t.Fatalf("request %d leaves %+v, which %d holds", id, slot, w.holds[slot])
	}
	delete(w.holds, slot)
}

func (w *world) enter(t *testing.T, id uint64, slot Slot) {
	t.Helper()
	if o, taken := w.holds[slot]; taken || slot.Index >= w.banks[bankOf(slot)] {
		t.Fatalf("request %d enters %+v, which %d holds, of %d", id, slot, o, w.banks[bankOf(slot)])
	}
	w.holds[slot] = id
	w.lives[id].slot = &slot
}

// execute carries a plan out. Some of it is left undone now and then.
func (w *world) execute(t *testing.T, p *Plan) {
	t.Helper()
	for _, l := range p.Left {
		if l.Had {
			w.leave(t, l.ID, l.Slot)
		}
	}
	if w.kept -= p.Reclaim; w.kept < 0 {
		t.Fatalf("%d bytes too many reclaimed", -w.kept)
	}
	for _, c := range p.Changes {
		switch c.Op {
		case Resize:
			if w.banks[bankOf(c.At)] != c.From {
				t.Fatalf("%+v, but the bank has %d slots", c, w.banks[bankOf(c.At)])
			}
			if peak := w.charged() + w.kept + int64(c.To)*w.slotBytes(c.At); c.To > 0 && peak > w.budget {
				t.Fatalf("%+v takes %d of %d bytes", c, peak, w.budget)
			}
			w.banks[bankOf(c.At)] = c.To
			if c.To == 0 {
				delete(w.banks, bankOf(c.At))
			}
			for s := range w.holds {
				if bankOf(s) == bankOf(c.At) && s.Index >= c.To {
					t.Fatalf("%+v cuts off a slot in use", c)
				}
			}
		case Move:
			w.leave(t, c.ID, c.At)
			w.enter(t, c.ID, c.Into)
		case Preempt:
			w.leave(t, c.ID, c.At)
			l := w.lives[c.ID]
			l.slot, l.cached, l.waits = nil, 0, 0
		}
	}
	for _, f := range p.Failed {
		c := w.lives[f.ID]
		if f.Need <= w.budget || c.slot != nil {
			t.Fatalf("request %d fails with %d bytes of %d", f.ID, f.Need, w.budget)
		}
		w.failed++
		delete(w.lives, f.ID)
	}
	if sum := w.charged(); sum+w.kept > w.budget || sum != w.s.memory.charged || w.kept != w.s.memory.kept {
		t.Fatalf("charged %d and %d, kept %d and %d, of %d", sum, w.s.memory.charged, w.kept, w.s.memory.kept, w.budget)
	}
	last := -1
	for _, j := range p.Joins {
		w.enter(t, j.ID, j.Slot)
		l := w.lives[j.ID]
		if l.order < last || l.total != j.Tokens {
			t.Fatalf("%+v of %+v joins out of order", j, *l)
		}
		last = l.order
		l.cached = j.Reused
		if j.Reused > 0 && w.r.IntN(4) == 0 { // evicted meanwhile
			l.cached = 0
			w.must(Event{Kind: Reused, ID: j.ID})
		}
	}
	w.chunks(t, p)
	w.passes(t, p)
}

func (w *world) chunks(t *testing.T, p *Plan) {
	t.Helper()
	spent := 0
	for _, c := range p.Chunks {
		l := w.lives[c.ID]
		spent += c.N
		if l.slot == nil || *l.slot != c.Slot || c.N < 1 || l.parked {
			t.Fatalf("chunk %+v of %+v", c, *l)
		}
		if c.From != l.cached {
			continue // its prefix is gone
		}
		if l.cached += c.N; l.cached > l.total || l.cached == l.total && l.max != 0 {
			t.Fatalf("chunk %+v of %+v", c, *l)
		}
		w.must(Event{Kind: Prefilled, ID: c.ID, N: c.N})
		if l.max == 0 && l.cached == l.total {
			w.end(Event{Kind: Finish, ID: c.ID})
		}
	}
	if spent > max(w.tokens, 1) {
		t.Fatalf("%d tokens in chunks", spent)
	}
}

func (w *world) passes(t *testing.T, p *Plan) {
	t.Helper()
	spent := 0
	served := map[uint64]bool{}
	for _, pass := range p.Passes {
		spent += pass.Width * len(pass.Rows)
		w.widest = max(w.widest, pass.Width)
		for _, g := range pass.Groups {
			for _, row := range pass.Rows[g.From:g.To] {
				if bankOf(row.Slot) != bankOf(g.Slot) || row.Length+pass.Width > g.Keys && g.Keys < g.Slot.Keys+w.classes[pass.Class].Pad {
					t.Fatalf("row %+v in group %+v of width %d", row, g, pass.Width)
				}
			}
		}
		for _, row := range pass.Rows {
			l := w.lives[row.ID]
			n := 1 + row.Drafts
			if served[row.ID] || l.slot == nil || *l.slot != row.Slot || l.parked || n > l.credit || n > pass.Width ||
				row.Length+n > row.Slot.Keys || l.max >= 0 && n > l.max-l.given || row.Slot.Class != pass.Class {
				t.Fatalf("row %+v of %+v at width %d", row, *l, pass.Width)
			}
			served[row.ID] = true
			if row.Length != l.cached { // its prefix is gone
				continue
			}
			if l.cached != l.total-1 {
				t.Fatalf("row %+v of %+v decodes", row, *l)
			}
			l.waits = 0
			got := 1 + w.r.IntN(n)
			l.cached, l.total, l.given, l.credit = l.cached+got, l.total+got, l.given+got, l.credit-got
			w.must(Event{Kind: Committed, ID: row.ID, N: got, Accepted: got - 1})
			switch {
			case l.max >= 0 && l.given == l.max || w.r.IntN(400) == 0:
				w.end(Event{Kind: Finish, ID: row.ID})
			case w.r.IntN(300) == 0:
				l.cached, l.total, l.given, l.credit = l.cached-got, l.total-got, l.given-got, l.credit+got
				w.must(Event{Kind: Retract, ID: row.ID, N: got})
			}
		}
		w.must(Event{Kind: Cost, Class: pass.Class, N: len(pass.Rows), Width: pass.Width, Nanos: int64(1000 + 10*len(pass.Rows)*pass.Width)})
	}
	if len(p.Passes) > 0 && spent > w.tokens {
		t.Fatalf("%d tokens in passes, of %d", spent, w.tokens)
	}
	// Nobody starves: a ready row waits at most for the others.
	ready := 0
	for id, l := range w.lives {
		if q := w.s.byID[id]; l.slot != nil && q.decodes() {
			ready++
			if !served[id] {
				l.waits++
			}
		}
	}
	share := max(1, w.tokens-max(1, w.tokens/4))
	for id, l := range w.lives {
		if q := w.s.byID[id]; q.decodes() && l.waits > (len(w.lives)+share-1)/share+1 {
			t.Fatalf("request %d waits for %d steps with %d ready and %d tokens", id, l.waits, ready, w.tokens)
		}
	}
}

func (w *world) end(e Event) {
	w.must(e)
	delete(w.lives, e.ID)
}

// event makes up one event.
func (w *world) event() {
	ids := make([]uint64, 0, len(w.lives))
	for id := w.nextID; id > 0 && len(ids) < len(w.lives); id-- {
		if w.lives[id] != nil {
			ids = append(ids, id)
		}
	}
	var id uint64
	if len(ids) > 0 {
		id = ids[w.r.IntN(len(ids))]
	}
	l := w.lives[id]
	switch k := w.r.IntN(100); {
	case l == nil || k < 12 && len(ids) < 40:
		w.nextID++
		n := 1 + w.r.IntN(1+w.r.IntN(1200))
		e := Event{Kind: Admit, ID: w.nextID, Class: uint32(w.r.IntN(4)), N: n, Max: w.r.IntN(200) - 1, Reused: w.r.IntN(n), Step: w.r.IntN(3) * 50}
		w.lives[w.nextID] = &life{order: int(w.nextID), total: n, max: e.Max}
		w.must(e)
	case k < 60:
		n := 1 + w.r.IntN(30)
		l.credit += n
		w.must(Event{Kind: Credit, ID: id, N: n})
	case k < 85:
		odds := make([]uint32, w.r.IntN(16))
		p := uint32(million)
		for i := range odds {
			p = uint32(uint64(p) * uint64(500+w.r.IntN(500)) / 1000)
			odds[i] = p
		}
		w.must(Event{Kind: Drafts, ID: id, N: w.r.IntN(len(odds) + 1), Odds: odds, Width: w.r.IntN(MaxWidth), Force: k == 84})
	case k < 88:
		l.parked = true
		w.must(Event{Kind: Park, ID: id})
	case k < 94:
		l.parked, l.waits = false, 0
		w.must(Event{Kind: Resume, ID: id})
	case k < 95:
		w.end(Event{Kind: []Kind{Cancel, Fail}[w.r.IntN(2)], ID: id})
	case k < 96:
		w.tokens = 1 + w.r.IntN(600)
		for _, l := range w.lives {
			l.waits = 0
		}
	case k < 97:
		b := w.budget*int64(50+w.r.IntN(101))/100 + 2000
		if w.r.IntN(8) == 0 {
			b = int64(w.r.IntN(6000))
		}
		w.setBudget(b)
	case k < 98:
		w.kept = int64(w.r.IntN(20000))
		w.must(Event{Kind: Kept, Bytes: w.kept})
	default: // what is refused changes nothing
		bad := []Event{{Kind: Admit, ID: id, N: 1}, {Kind: Credit, ID: w.nextID + 9, N: 1}, {Kind: Prefilled, ID: id, N: MaxTokens},
			{Kind: Committed, ID: id, N: l.credit + 1}, {Kind: 99, ID: id}, {Kind: Credit, ID: id}}
		if e := bad[w.r.IntN(len(bad))]; w.p.Apply(e) == nil {
			panic(fmt.Sprintf("%+v was taken", e))
		}
	}
}

// check compares the scheduler's books with themselves.
func (w *world) check(t *testing.T) {
	t.Helper()
	s := w.s
	if len(s.byID) != len(s.running)+len(s.queue) || len(s.byID) != len(w.lives) {
		t.Fatalf("%d requests, %d running, %d queued, %d alive", len(s.byID), len(s.running), len(s.queue), len(w.lives))
	}
	sum, used := int64(0), 0
	for _, b := range s.memory.banks {
		sum += b.bytes(len(b.slots))
		n := 0
		for i, q := range b.slots {
			if q != nil {
				n++
				if q.bank != b || q.slot != i || s.byID[q.id] != q {
					t.Fatalf("slot %d of a bank of %d keys holds another's request", i, b.keys)
				}
			}
		}
		if n != b.used {
			t.Fatalf("%d slots used, %d counted", n, b.used)
		}
		used += n
	}
	if used != len(s.running) || sum != s.memory.charged {
		t.Fatalf("%d slots for %d running; %d bytes, %d charged", used, len(s.running), sum, s.memory.charged)
	}
	for i, q := range s.running {
		if i > 0 && s.running[i-1].order >= q.order || q.cached > q.total || q.state != Prefilling && q.state != Decoding {
			t.Fatalf("running request %+v", *q)
		}
	}
	for i, q := range s.queue {
		if i > 0 && s.queue[i-1].order >= q.order || q.bank != nil || q.state == Prefilling || q.state == Decoding {
			t.Fatalf("queued request %+v", *q)
		}
	}
}

// drain gives every reader all credit and sees that every request ends.
func (w *world) drain(t *testing.T) {
	t.Helper()
	for id := uint64(1); id <= w.nextID; id++ {
		if l := w.lives[id]; l != nil {
			l.credit, l.parked = l.credit+10000, false
			w.must(Event{Kind: Credit, ID: id, N: 10000})
			w.must(Event{Kind: Resume, ID: id})
			if l.max < 0 {
				w.end(Event{Kind: Cancel, ID: id})
			}
		}
	}
	w.tokens = max(w.tokens, 32)
	bound := 100
	for _, l := range w.lives {
		bound += 12 * (l.total/8 + l.max + 2) // each may recompute with every doubling
	}
	for steps := 0; len(w.lives) > 0; steps++ {
		if steps > bound {
			t.Fatalf("%d requests have not ended after %d steps", len(w.lives), steps)
		}
		p := w.p.Next(Budget{w.tokens})
		if p.Empty() && len(w.lives) > 0 {
			t.Fatalf("nothing to do for %d requests", len(w.lives))
		}
		w.execute(t, p)
		w.check(t)
	}
	w.execute(t, w.p.Next(Budget{w.tokens}))
	if w.charged() != 0 || len(w.holds) != 0 {
		t.Fatalf("%d bytes are left, %d slots", w.charged(), len(w.holds))
	}
}

func (w *world) run(t *testing.T, events int) {
	t.Helper()
	for w.events < events {
		w.event()
		w.check(t)
		if w.r.IntN(3) == 0 {
			w.execute(t, w.p.Next(Budget{w.tokens}))
			w.check(t)
		}
	}
	w.drain(t)
}

func small() Config { return Config{Slots: 16, PrefillStep: 128, MinKeys: 32, Headroom: 16} }

func TestHundredThousandEvents(t *testing.T) {
	seen := map[[2]State]int{}
	var total Stats
	for seed := range uint64(10) {
		s, err := New(small())
		if err != nil {
			t.Fatal(err)
		}
		s.reached = func(from, to State) {
			if !Allowed(from, to) {
				t.Fatalf("%v to %v", from, to)
			}
			seen[[2]State{from, to}]++
		}
		w := newWorld(s, s, seed, int64(20000<<(seed%3)))
		w.run(t, 10000)
		st := s.Stats()
		total.Preemptions += st.Preemptions
		total.Moves += st.Moves
		total.Failed += st.Failed
		total.Accepted += st.Accepted
		total.Reclaimed += st.Reclaimed
		total.Blocked += st.Blocked
	}
	for from, list := range transitions {
		for _, to := range list {
			if seen[[2]State{State(from), to}] == 0 {
				t.Logf("never from %v to %v", State(from), to)
			}
		}
	}
	if total.Preemptions < 100 || total.Moves < 100 || total.Failed < 5 || total.Accepted < 100 || total.Reclaimed == 0 || total.Blocked < 50 {
		t.Errorf("too little happened: %+v", total)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add(uint64(1), uint32(30000), uint16(300))
	f.Add(uint64(2), uint32(0), uint16(300))
	f.Fuzz(func(t *testing.T, seed uint64, budget uint32, events uint16) {
		s, err := New(small())
		if err != nil {
			t.Fatal(err)
		}
		newWorld(s, s, seed, int64(budget)).run(t, int(events%2000))
	})
}

func TestErrorsAreTold(t *testing.T) {
	s, _ := New(small())
	if err := s.Apply(Event{Kind: Credit, ID: 3, N: 1}); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if err := s.Apply(Event{Kind: Admit, ID: 3, N: 1}); !errors.Is(err, ErrValue) {
		t.Error(err)
	}
}
