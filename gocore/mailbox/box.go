// Package mailbox carries work to one thread, and its results to readers. It
// knows nothing of MLX.
//
// No call here waits for another side: Post never blocks, however much is
// queued, and no lock is held while anything is posted or run. So whoever runs
// the queue may touch an Outbox, and a reader may post while it is being served.
package mailbox

import "sync"

// Box is a queue of work for one thread, in the order in which it was posted.
type Box struct {
	mu     sync.Mutex
	queue  []func()
	closed bool
	ready  chan struct{}
}

// NewBox returns an empty queue.
func NewBox() *Box { return &Box{ready: make(chan struct{}, 1)} }

// Post queues f. It tells with false that the box is closed; then f never runs.
func (b *Box) Post(f func()) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.queue = append(b.queue, f)
	b.mu.Unlock()
	signal(b.ready)
	return true
}

// Ready receives when work may have come since the last Take.
func (b *Box) Ready() <-chan struct{} { return b.ready }

// Take removes all that is queued, for the caller to run.
func (b *Box) Take() []func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.queue
	b.queue = nil
	return taken
}

// Close refuses further work and returns what is queued.
func (b *Box) Close() []func() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	return b.Take()
}

// signal fills a channel of one place.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Len counts what is queued.
func (b *Box) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}
