package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

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
		e := Event{Kind: Admit, ID: w.nextID, Class: uint32(w.r.IntN(4)), N: n, Max: w.r.IntN(1+w.r.IntN(900)) - 1, Reused: w.r.IntN(n), Step: w.r.IntN(3) * 50}
		w.lives[w.nextID] = &life{order: int(w.nextID), class: e.Class, total: n, max: e.Max}
		w.must(e)
	case k < 60:
		n := 1 + w.r.IntN(30)
		l.credit += n
		w.must(Event{Kind: Credit, ID: id, N: n})
	case k < 85:
		if slices.Contains(w.ahead, id) {
			return // its last token is not known
		}
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
		l.parked = false
		w.must(Event{Kind: Resume, ID: id})
	case k < 95:
		kind := []Kind{Cancel, Fail, Finish}[w.r.IntN(3)]
		if state, _ := w.s.State(id); kind == Finish && !Allowed(state, Finished) {
			kind = Cancel
		}
		w.end(Event{Kind: kind, ID: id})
	case k < 96:
		w.tokens = 1 + w.r.IntN(600)
		for _, l := range w.lives {
			l.waits = 0
		}
	case k < 97:
		b := w.budget*int64(50+w.r.IntN(101))/100 + 8000
		if w.r.IntN(8) == 0 {
			b = int64(w.r.IntN(10000))
		}
		w.setBudget(b)
	case k < 98:
		w.kept = int64(w.r.IntN(20000))
		w.must(Event{Kind: Kept, Bytes: w.kept})
		if !slices.Contains(w.ahead, id) {
			w.must(Event{Kind: Rest, ID: id})
			l.credit = 0
		}
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
	sum, moment := int64(0), int64(0)
	for _, q := range s.running {
		sum += w.bytes(q.class.id, q.capacity)
		moment += q.moment
		if l := w.lives[q.id]; l != nil && (q.cached > q.capacity || l.capacity > q.capacity || q.moment > 0 && q.class.growBytes == 0) {
			t.Fatalf("running request %+v, buffers for %d", *q, l.capacity)
		}
	}
	if sum != s.memory.charged || moment != s.memory.moment {
		t.Fatalf("%d + %d bytes, %d + %d charged", sum, moment, s.memory.charged, s.memory.moment)
	}
	for i, q := range s.running {
		if i > 0 && s.running[i-1].order >= q.order || q.capacity == 0 || q.cached > q.total ||
			q.state != Prefilling && q.state != Decoding && q.state != Blocked {
			t.Fatalf("running request %+v", *q)
		}
	}
	for i, q := range s.queue {
		if i > 0 && s.queue[i-1].order >= q.order || q.capacity != 0 || q.moment != 0 || q.state == Prefilling || q.state == Decoding {
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
		if p := w.step(t); p.Empty() && len(w.lives) > 0 {
			t.Fatalf("nothing to do for %d requests", len(w.lives))
		}
	}
	if w.taken() != 0 || w.s.memory.charged != 0 || w.s.memory.moment != 0 {
		t.Fatalf("%d bytes are left, %d charged", w.taken(), w.s.memory.charged)
	}
}

func (w *world) run(t *testing.T, events int) {
	t.Helper()
	for w.events < events {
		w.event()
		w.check(t)
		if w.r.IntN(3) == 0 {
			w.step(t)
		}
	}
	w.drain(t)
}

func small() Config { return Config{Running: 16, PrefillStep: 128, Headroom: 16} }

func TestHundredThousandEvents(t *testing.T) {
	seen := map[[2]State]int{}
	var total Stats
	late := 0
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
		total.Grown += st.Grown
		late += w.late
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
	if total.Preemptions < 100 || total.Grown < 100 || total.Failed < 5 || total.Accepted < 100 || total.Reclaimed == 0 || total.Blocked < 50 || late == 0 {
		t.Errorf("too little happened: %+v, %d late tokens", total, late)
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
