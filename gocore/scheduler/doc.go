// Package scheduler decides which requests take part in the next step, with how
// many tokens and in which memory. It is pure: it knows nothing of MLX, of time
// or of threads. Whatever it decides on (requests, readers, drafts, measured
// costs, budgets) reaches it as an [Event]; the same events and the same calls
// of [Scheduler.Next] give byte-equal plans on every machine, which is why it
// counts in integers. A [Recorder] keeps both, and [Replay] runs them again.
//
// # A step, in the order of calls
//
//  1. Apply what happened since the last step: Admit, Credit, Park, Resume,
//     Cancel, Finish, Memory, Kept. For every decoding request that speculates,
//     propose and Apply its Drafts.
//  2. Next. An empty plan means that nobody can go on: wait for an event.
//  3. Free the slots in Plan.Left. Evict Plan.Reclaim bytes of kept prefixes.
//  4. Carry out Plan.Changes in order, evaluating each: banks grow and shrink,
//     rows move between slots, preempted requests give up theirs. The order is
//     what the memory accounting assumes. A pass that was queued ahead is read or
//     dropped before. Then end the requests in Plan.Failed with Failure.Err.
//  5. Plan.Joins: clear the slot; where the prefix index knows the prompt's
//     beginning, copy it there and Apply Reused before the next Next.
//  6. Plan.Chunks: one forward for the prompts that fill, or one each; Apply
//     Prefilled for each. A chunk that starts elsewhere than the cache ends (the
//     prefix was evicted meanwhile, or just found) is skipped, and so is such a row.
//  7. Plan.Passes: one forward each; Apply Cost with what a pass took,
//     and Committed for each row. With Pass.Lookahead the same rows may be queued
//     once more, without drafts, before this pass is read.
//
// A plan advances nothing by itself: what the engine does not confirm is
// planned again. An error of Apply changes nothing, so that an event which comes
// too late (ErrUnknown) can be ignored.
//
// # Tokens
//
// A request has total tokens (its prompt and what was committed), of which the
// cache holds some. All but the last are prefilled; the last one is the first row
// of a pass, whose logits give the next token. A request that asks for no tokens
// (Max 0) prefills all of them; the engine then sends Finish.
//
// # Memory
//
// Rows of a class lie in banks: buffers of [slots, heads, keys, head size] a
// layer, of one capacity of keys (a power of two), so that a long request beside
// short ones does not make theirs long. A bank that grows is copied: old and new
// are charged together until the copy is done. Within a budget, memory for an
// older request comes, in this order, from free slots, from kept prefixes, from
// banks that can shrink, from parked requests and from the youngest ones, which
// are preempted: they give up their slot and recompute from their tokens when
// they join again, in order of admission. A request fails only if a bank of one
// slot for its tokens exceeds the budget alone.
//
// # Fairness
//
// With R rows ready to decode and T tokens a step, of which a quarter is kept
// for prompts while there are any, a ready row is in a pass at least every
// ⌈R/⌈3T/4⌉⌉ steps; the oldest filling prompt gets min(its rest, its chunk, T/4)
// tokens at every step; and requests join in order of admission, none overtaking
// another that could join but for memory. The oldest running request is never
// preempted for another. A request whose reader takes nothing keeps its slot:
// Park it to let others have the memory.
package scheduler
