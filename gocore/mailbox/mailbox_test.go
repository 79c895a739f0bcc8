package mailbox

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
)

// worker serves readers as the engine's thread does: it delivers to who waits,
// and ends who is cancelled.
type worker struct {
	box  *Box
	quit chan struct{}
	done chan struct{}
}

func newWorker() *worker {
	w := &worker{box: NewBox(), quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for {
			for _, f := range w.box.Take() {
				f()
			}
			select {
			case <-w.box.Ready():
			case <-w.quit:
				for _, f := range w.box.Close() {
					f()
				}
				return
			}
		}
	}()
	return w
}

func (w *worker) stop() {
	close(w.quit)
	<-w.done
}

var errCancelled = errors.New("cancelled")

// Many readers wait, ask, hold and cancel while one thread serves them; none of
// them may wait for ever.
func TestReadersAndCancelsDoNotBlockEachOther(t *testing.T) {
	const readers, items = 200, 50
	w := newWorker()
	var all sync.WaitGroup
	for reader := range readers {
		all.Go(func() {
			out := NewOutbox[int]()
			next := 0
			serve := func() {
				if s := out.State(); s.Ended {
					return
				}
				out.Deliver([]int{next}, next == items-1)
				next++
			}
			cancelled := reader%3 == 0
			want := 0
			for {
				item, status, ask, err := out.Take()
				switch {
				case err != nil || status == Finished:
					if !cancelled && (err != nil || want != items) || cancelled && err != nil && err != errCancelled {
						t.Errorf("reader %d: %d items, then %v", reader, want, err)
					}
					return
				case status == Ready:
					if item != want {
						t.Errorf("reader %d: item %d in place of %d", reader, item, want)
					}
					want++
					if reader%2 == 0 && out.Ask() {
						w.box.Post(serve)
					}
					if reader%5 == 0 {
						out.Hold()
						w.box.Post(func() { out.Release() })
					}
					if cancelled && want == items/2 {
						go w.box.Post(func() { out.Discard(); out.Fail(errCancelled) })
						w.box.Post(func() { out.Keep(0); out.Fail(errCancelled) })
					}
				case ask:
					w.box.Post(serve)
				default:
					<-out.Wake()
				}
			}
		})
	}
	finished := make(chan struct{})
	go func() { all.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-time.After(time.Minute):
		t.Fatal("readers wait for ever")
	}
	w.stop()
}

// More is posted than any buffer would hold while the thread is busy; nobody
// who posts waits for it.
func TestPostNeverWaits(t *testing.T) {
	b := NewBox()
	order := []int{}
	for i := range 10_000 {
		if !b.Post(func() { order = append(order, i) }) {
			t.Fatal("refused")
		}
	}
	for _, f := range b.Take() {
		f()
	}
	if len(order) != 10_000 || !slices.IsSorted(order) {
		t.Fatalf("%d of 10000 ran in order", len(order))
	}
}

func TestACloseGivesBackWhatIsQueued(t *testing.T) {
	b := NewBox()
	b.Post(func() {})
	if left := b.Close(); len(left) != 1 {
		t.Fatalf("%d left", len(left))
	}
	if b.Post(func() {}) {
		t.Fatal("a closed box took work")
	}
}

func TestKeepTakesTheEndBack(t *testing.T) {
	o := NewOutbox[int]()
	o.Deliver([]int{1, 2, 3}, true)
	if removed := o.Keep(1); !slices.Equal(removed, []int{2, 3}) {
		t.Fatalf("removed %v", removed)
	}
	if s := o.State(); s.Ended || s.Waiting != 1 {
		t.Fatalf("%+v", s)
	}
	o.Edit(func(item *int) { *item = 7 })
	if item, status, _, _ := o.Take(); item != 7 || status != Ready {
		t.Fatalf("%d, %v", item, status)
	}
	if _, status, ask, _ := o.Take(); status != Pending || !ask {
		t.Fatalf("%v, ask %v", status, ask)
	}
	if o.Ask() {
		t.Fatal("asked twice")
	}
}

func TestItemsComeBeforeTheError(t *testing.T) {
	o := NewOutbox[int]()
	o.Deliver([]int{1}, false)
	o.Fail(errCancelled)
	o.Fail(errors.New("later"))
	if item, _, _, err := o.Take(); item != 1 || err != nil {
		t.Fatalf("%d, %v", item, err)
	}
	if _, status, _, err := o.Take(); status != Finished || err != errCancelled {
		t.Fatalf("%v, %v", status, err)
	}
}

func TestHeldItemsWait(t *testing.T) {
	o := NewOutbox[int]()
	o.Deliver([]int{1}, false)
	o.Hold()
	o.Hold()
	o.Release()
	if _, status, ask, _ := o.Take(); status != Pending || ask {
		t.Fatalf("%v, ask %v", status, ask)
	}
	o.Release()
	if item, status, _, _ := o.Take(); item != 1 || status != Ready {
		t.Fatalf("%d, %v", item, status)
	}
}
