package mailbox

import "sync"

// Status is what a reader found.
type Status int

// Take returns an item, finds none yet, or finds the end.
const (
	Ready Status = iota
	Pending
	Finished
)

// Outbox holds results of one request until its reader takes them. The reader
// takes; the thread that works delivers, takes back and ends.
type Outbox[T any] struct {
	mu     sync.Mutex
	items  []T
	wanted bool // the reader waits, and the worker knows
	held   int  // changes on their way that may take items back
	ended  bool
	err    error
	wake   chan struct{}
}

// NewOutbox returns an empty outbox.
func NewOutbox[T any]() *Outbox[T] { return &Outbox[T]{wake: make(chan struct{}, 1)} }

// Wake receives when a Take may find what the last one did not.
func (o *Outbox[T]) Wake() <-chan struct{} { return o.wake }

// Signal makes Wake receive.
func (o *Outbox[T]) Signal() { signal(o.wake) }

// Take removes the first item. With ask, the worker does not know yet that the
// reader waits: the caller must tell it.
func (o *Outbox[T]) Take() (item T, status Status, ask bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.held > 0:
		return item, Pending, false, nil
	case len(o.items) > 0:
		item, o.items = o.items[0], o.items[1:]
		return item, Ready, false, nil
	case o.err != nil:
		return item, Finished, false, o.err
	case o.ended:
		return item, Finished, false, nil
	}
	ask = !o.wanted
	o.wanted = true
	return item, Pending, ask, nil
}

// Ask tells whether the worker must be told that an item is wanted, as with
// Take: there is none, and none is on its way.
func (o *Outbox[T]) Ask() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.wanted || o.held > 0 || o.ended || len(o.items) > 0 {
		return false
	}
	o.wanted = true
	return true
}

// Hold keeps items from the reader until as many Release calls: a change is on
// its way that may take some back.
func (o *Outbox[T]) Hold() {
	o.mu.Lock()
	o.held++
	o.mu.Unlock()
}

// Release ends a Hold.
func (o *Outbox[T]) Release() {
	o.mu.Lock()
	o.held--
	o.mu.Unlock()
	o.Signal()
}

// Deliver appends items, the last ones with ended.
func (o *Outbox[T]) Deliver(items []T, ended bool) {
	o.mu.Lock()
	o.items = append(o.items, items...)
	o.ended = o.ended || ended
	o.wanted = false
	o.mu.Unlock()
	o.Signal()
}

// Keep removes all items but the first n and returns those removed. An end that
// was delivered with them is taken back, too.
func (o *Outbox[T]) Keep(n int) (removed []T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n = min(n, len(o.items))
	removed = append(removed, o.items[n:]...)
	o.items = o.items[:n:n]
	if len(removed) > 0 {
		o.ended = false
	}
	return removed
}

// Edit changes the first item, if there is one, and tells whether there was.
func (o *Outbox[T]) Edit(change func(item *T)) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.items) == 0 {
		return false
	}
	change(&o.items[0])
	return true
}

// Fail ends the outbox with an error, which the reader gets after the items
// before it. The first error counts, and none after the end.
func (o *Outbox[T]) Fail(err error) {
	o.mu.Lock()
	if o.err == nil && !o.ended {
		o.err = err
	}
	o.ended = true
	o.mu.Unlock()
	o.Signal()
}

// Discard ends the outbox without an error and returns the items that nobody
// will take.
func (o *Outbox[T]) Discard() []T {
	o.mu.Lock()
	left := o.items
	o.items, o.ended = nil, true
	o.mu.Unlock()
	o.Signal()
	return left
}

// State is a look at an outbox.
type State struct {
	Waiting       int // items that nobody took yet
	Wanted, Ended bool
	Err           error
}

// State looks at the outbox.
func (o *Outbox[T]) State() State {
	o.mu.Lock()
	defer o.mu.Unlock()
	return State{Waiting: len(o.items), Wanted: o.wanted, Ended: o.ended, Err: o.err}
}
