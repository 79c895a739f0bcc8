package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
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
	class                     uint32
	capacity                  int // of its buffers; 0 without
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
	ahead   []uint64 // rows of a pass that was queued ahead and not read yet
	budget  int64
	kept    int64
	moment  int64 // what copies of the plan that is carried out take
	nextID  uint64
	events  int
	tokens  int
	failed  int
	late    int // tokens of requests that were preempted meanwhile
	classes []Event
}

func newWorld(p planner, s *Scheduler, seed uint64, budget int64) *world {
	w := &world{p: p, s: s, r: rand.New(rand.NewPCG(seed, 1)), lives: map[uint64]*life{}, tokens: 256}
	w.classes = []Event{
		{Kind: Define, Class: 0, Bytes: 8, WindowBytes: 4, Window: 300, GrowBytes: 2, Width: 16},
		{Kind: Define, Class: 1, Bytes: 3, StateBytes: 1000, GrowBytes: 3, Width: 4},
		{Kind: Define, Class: 2, Bytes: 8, GrowBytes: 1, Width: 8, Solo: true},
		{Kind: Define, Class: 3, StateBytes: 3000, Width: 8},
	}
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

// bytes is what a cache of a class takes, said once more than in the scheduler.
func (w *world) bytes(class uint32, capacity int) int64 {
	if capacity == 0 {
		return 0
	}
	c := w.classes[class]
	return int64(capacity)*c.Bytes + int64(min(capacity, c.Window))*c.WindowBytes + c.StateBytes
}

func (w *world) taken() (sum int64) {
	for _, l := range w.lives {
		sum += w.bytes(l.class, l.capacity)
	}
	return sum
}

// grow makes a request's buffers hold so many tokens, beside all others'.
func (w *world) grow(t *testing.T, id uint64, capacity int) {
	t.Helper()
	l := w.lives[id]
	if l.capacity > 0 && l.capacity < capacity {
		w.moment += w.classes[l.class].GrowBytes * int64(capacity)
	}
	if capacity < l.capacity || capacity%GrowTokens != 0 {
		t.Fatalf("request %d grows from %d to %d", id, l.capacity, capacity)
	}
	l.capacity = capacity
	if sum := w.taken() + w.kept + w.moment; sum > w.budget {
		t.Fatalf("request %d grows to %d: %d of %d bytes", id, capacity, sum, w.budget)
	}
}

// read takes in what a pass that was queued ahead gave, maybe after its requests
// were preempted by p.
func (w *world) read(p *Plan) {
	for _, id := range w.ahead {
		l := w.lives[id]
		if l == nil || slices.ContainsFunc(p.Failed, func(f Failure) bool { return f.ID == id }) {
			continue
		}
		if slices.Contains(p.Preempted, id) {
			w.late++
		} else {
			l.cached++
		}
		l.total, l.given, l.credit = l.total+1, l.given+1, l.credit-1
		w.must(Event{Kind: Committed, ID: id, N: 1})
		if l.given == l.max {
			w.end(Event{Kind: Finish, ID: id})
		}
	}
	w.ahead = w.ahead[:0]
}

// step plans and carries out; some of it is left undone now and then.
func (w *world) step(t *testing.T) *Plan {
	t.Helper()
	if w.r.IntN(2) == 0 {
		w.read(&Plan{})
	}
	oldest, shrunk := w.s.oldest(), w.s.memory.charged+w.s.memory.moment > w.budget
	p := w.p.Next(Budget{w.tokens})
	if oldest != nil && !shrunk && slices.Contains(p.Preempted, oldest.id) &&
		!slices.ContainsFunc(p.Joins, func(j Join) bool { return j.ID == oldest.id }) {
		t.Fatalf("the oldest request, %d, was preempted", oldest.id)
	}
	if q := w.s.oldest(); q != nil && q.state == Blocked {
		t.Fatalf("the oldest request, %d, waits for memory", q.id)
	}
	if over := w.s.memory.over(0); over > 0 {
		t.Fatalf("%d bytes too many", over)
	}
	w.read(p)
	w.memory(t, p)
	w.check(t)
	w.joins(t, p)
	w.chunks(t, p)
	w.passes(t, p)
	w.check(t)
	return p
}

func (w *world) memory(t *testing.T, p *Plan) {
	t.Helper()
	w.moment = 0
	for _, id := range p.Preempted {
		l := w.lives[id]
		if l == nil {
			continue // it ended with what was queued ahead
		}
		if l.capacity == 0 {
			t.Fatalf("request %d is preempted without a cache", id)
		}
		l.capacity, l.cached, l.waits = 0, 0, 0
	}
	for _, f := range p.Failed {
		if l := w.lives[f.ID]; f.Need <= w.budget || f.Need != w.bytes(l.class, capacity(f.Tokens)) || f.Tokens != l.total {
			t.Fatalf("request %d fails with %d bytes of %d", f.ID, f.Need, w.budget)
		}
		w.failed++
		delete(w.lives, f.ID)
	}
	if w.kept -= p.Reclaim; w.kept < 0 {
		t.Fatalf("%d bytes too many reclaimed", -w.kept)
	}
}

func (w *world) joins(t *testing.T, p *Plan) {
	t.Helper()
	last := -1
	for _, j := range p.Joins {
		l := w.lives[j.ID]
		if l == nil {
			continue // it ended with what was queued ahead
		}
		again := slices.Contains(p.Preempted, j.ID)
		if l.order < last && !again || l.capacity != 0 || l.total != j.Tokens && !again || j.Tokens > j.Capacity {
			t.Fatalf("%+v of %+v joins", j, *l)
		}
		last = max(last, l.order)
		w.grow(t, j.ID, j.Capacity)
		l.cached = j.Reused
		if j.Reused > 0 && w.r.IntN(4) == 0 { // evicted meanwhile
			l.cached = 0
			w.must(Event{Kind: Reused, ID: j.ID})
		}
	}
}

func (w *world) chunks(t *testing.T, p *Plan) {
	t.Helper()
	spent := 0
	for _, c := range p.Chunks {
		l := w.lives[c.ID]
		spent += c.N
		if l == nil || c.From != l.cached {
			continue // its prefix is gone
		}
		w.grow(t, c.ID, c.Capacity)
		if c.N < 1 || l.parked || c.From+c.N > c.Capacity {
			t.Fatalf("chunk %+v of %+v", c, *l)
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
		spent += pass.size()
		w.pass(t, pass, served)
		w.must(Event{Kind: Cost, Class: pass.Class, N: len(pass.Rows), Tokens: pass.size(), Nanos: int64(1000 + 10*pass.size())})
	}
	if len(p.Passes) > 0 && spent > w.tokens {
		t.Fatalf("%d tokens in passes, of %d", spent, w.tokens)
	}
	// Nobody starves: a ready row waits at most for the others.
	share := max(1, w.tokens-max(1, w.tokens/4))
	for id, l := range w.lives {
		switch q := w.s.byID[id]; {
		case served[id] || !q.decodes():
			l.waits = 0
		default:
			l.waits++
			if l.waits > (len(w.lives)+share-1)/share+1 {
				t.Fatalf("request %d waits for %d steps with %d alive and %d tokens", id, l.waits, len(w.lives), w.tokens)
			}
		}
	}
}

func (w *world) pass(t *testing.T, pass Pass, served map[uint64]bool) {
	t.Helper()
	solo, drafts, last := w.classes[pass.Class].Solo, 0, -1
	for _, row := range pass.Rows {
		served[row.ID] = true
		drafts += row.Drafts
		l := w.lives[row.ID]
		if l == nil || row.Length != l.cached { // it ended, or its prefix is gone
			continue
		}
		w.grow(t, row.ID, row.Capacity)
		n := 1 + row.Drafts
		if l.order <= last || l.parked || l.class != pass.Class || n > l.credit || n > max(1, w.classes[l.class].Width) ||
			row.Length+max(n, pass.Width) > row.Capacity || l.max >= 0 && row.Drafts > l.max-l.given || l.cached != l.total-1 ||
			(row.Route == RouteVerify) != (row.Drafts > 0) {
			t.Fatalf("row %+v of %+v", row, *l)
		}
		last = l.order
		got := 1 + w.r.IntN(n)
		if l.max >= 0 {
			got = min(got, l.max-l.given)
		}
		l.cached, l.total, l.given, l.credit = l.cached+got, l.total+got, l.given+got, l.credit-got
		w.must(Event{Kind: Committed, ID: row.ID, N: got, Accepted: got - 1})
		switch {
		case l.max >= 0 && l.given == l.max || w.r.IntN(400) == 0:
			w.end(Event{Kind: Finish, ID: row.ID})
		case w.r.IntN(300) == 0:
			l.cached, l.total, l.given, l.credit = l.cached-got, l.total-got, l.given-got, l.credit+got
			w.must(Event{Kind: Retract, ID: row.ID, N: got})
		case pass.Lookahead && w.r.IntN(3) > 0:
			w.ahead = append(w.ahead, row.ID)
		}
	}
	if pass.Tokens != len(pass.Rows)+drafts || solo && len(pass.Rows) > 1 || len(pass.Rows) > 1 && pass.Width != 0 ||
		pass.Lookahead && drafts > 0 || len(pass.Rows) == 1 && pass.Width < pass.Tokens {
		t.Fatalf("pass %+v", pass)
	}
}

func (w *world) end(e Event) {
	w.must(e)
	delete(w.lives, e.ID)
}
