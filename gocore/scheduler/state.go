package scheduler

import (
	"errors"
	"fmt"
	"slices"
)

// State is where a request stands in its life.
type State uint8

// The states of a request. Finished, Cancelled and Failed are final.
const (
	Waiting    State = iota // admitted, has no cache yet
	Prefilling              // has a cache; tokens before the last are not all in it
	Decoding                // has a cache; only the last token is not in it
	Blocked                 // first in the queue, or at its cache's end, and the memory does not suffice yet
	Preempted               // gave up its cache, waits to join again
	Finished
	Cancelled
	Failed
)

var stateNames = [...]string{"waiting", "prefilling", "decoding", "blocked", "preempted", "finished", "cancelled", "failed"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Final tells whether a request in s has ended.
func (s State) Final() bool { return s >= Finished }

// transitions lists what may follow each state.
var transitions = [...][]State{
	Waiting:    {Prefilling, Decoding, Blocked, Cancelled, Failed},
	Prefilling: {Decoding, Blocked, Preempted, Finished, Cancelled, Failed},
	Decoding:   {Prefilling, Blocked, Preempted, Finished, Cancelled, Failed},
	Blocked:    {Prefilling, Decoding, Preempted, Finished, Cancelled, Failed},
	Preempted:  {Prefilling, Decoding, Blocked, Finished, Cancelled, Failed},
	Finished:   nil,
	Cancelled:  nil,
	Failed:     nil,
}

// Allowed tells whether a request may go from one state to another.
func Allowed(from, to State) bool {
	return int(from) < len(transitions) && slices.Contains(transitions[from], to)
}

// Errors that Apply wraps.
var (
	ErrUnknown    = errors.New("no such request") // it ended, or never was
	ErrTransition = errors.New("not allowed in this state")
	ErrValue      = errors.New("value out of range")
)
