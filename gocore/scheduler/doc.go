// Package scheduler decides which requests take part in the next step, with how
// many tokens and in how much memory. It is pure: it knows nothing of MLX, of time
// or of threads. Whatever it decides on (requests, readers, drafts, measured
// costs, budgets) reaches it as an [Event]; the same events and the same calls
// of [Scheduler.Next] give byte-equal plans on every machine, which is why it
// counts in integers. A [Recorder] keeps both, and [Replay] runs them again.
//
// # A step, in the order of calls
//
//  1. Apply what happened since the last step: Admit, Credit, Park, Resume,
//     Cancel, Finish, Memory, Kept. Who ends gives its cache up at once. For every
//     decoding request that speculates, and of which no pass is queued ahead,
//     propose and Apply its Drafts.
//  2. Next. An empty plan means that nobody can go on: wait for an event.
//  3. Read or drop a pass that was queued ahead; Apply Committed for its rows, also
//     for those that the plan preempts, not for those that it fails.
//  4. Plan.Preempted: free these caches. Plan.Failed: end these requests with
//     Failure.Err. Evict Plan.Reclaim bytes of kept prefixes. All this comes before
//     any cache is made or grows.
//  5. Plan.Joins: a new cache; where the prefix index knows the prompt's beginning,
//     copy it there and, if that is not what was hoped for, Apply Reused before the
//     next Next.
//  6. Plan.Chunks: one forward for the prompts that fill, or one each; Apply
//     Prefilled for each.
//  7. Plan.Passes: one forward each, of the rows' tokens one row after another;
//     Apply Committed for each row, and Cost with what the pass took. With
//     Pass.Lookahead the same rows may be queued once more, without drafts, before
//     this pass is read.
//
// A chunk or row first grows its cache to its Capacity. It is skipped when its
// request has ended or its cache ends elsewhere than the plan says, because a
// prefix was evicted meanwhile or just found, or a pass queued ahead was read.
//
// A plan advances nothing by itself: what the engine does not confirm is
// planned again. An error of Apply changes nothing, so that an event which comes
// too late (ErrUnknown) can be ignored.
//
// # Tokens
//
// A request has total tokens (its prompt and what was committed), of which the
// cache holds some. All but the last are prefilled; the last one is the first of
// its row in a pass, whose logits give the next token. A request that asks for no
// tokens (Max 0) prefills all of them; the engine then sends Finish.
//
// A step's budget goes to decoding first, one token a row; a quarter of it is kept
// for prompts while there are any. What is left of the rows' share goes to drafts,
// to each pass by its number of rows. Within a pass the drafts of all rows are
// taken by their odds, as many as give the most tokens for the time that passes of
// so many tokens took; a pass of one row has what its own speculator chose.
//
// # Memory
//
// A request has a cache of its own. One with a capacity of n tokens, a multiple of
// GrowTokens, is charged
//
//	Bytes·n + WindowBytes·min(n, Window) + StateBytes
//
// whatever it holds. It joins with room for all its tokens and for those to come,
// at most Config.Headroom, if it could have that alone, else for its tokens: a
// prompt that fills never waits in the middle. Before each step, the oldest
// first, a request without room for its next token is granted the next capacity;
// until that was used, GrowBytes·capacity are charged on top, for the copy of a
// layer. Memory for it comes, in this order, from
//
//  1. what is free,
//  2. kept prefixes,
//  3. parked requests, the youngest first, whatever their age,
//  4. requests younger than it, the youngest first.
//
// Those of 3 and 4 are preempted: they give up their caches and recompute from
// their tokens when they join again. If all of that is not enough, nothing is
// taken and the request is blocked: it keeps its cache and waits. Only the oldest
// that runs (parked ones aside) does not: it gives up its own cache, which ends
// the need for a copy, and joins again in the same step. Room for drafts comes
// from what is free after that; without it they are cut.
//
// Who joins takes from 1 to 3. Requests join in order of admission, preempted
// ones at their old place. The first one that wants to and cannot is blocked, with
// all behind it; so is every request younger than a running one that is blocked.
//
// When the budget becomes smaller, kept prefixes go first, then parked requests,
// then the youngest, even the oldest at last. A request fails only if a cache for
// its tokens exceeds the budget alone.
//
// # Fairness
//
// With R rows ready to decode and T tokens a step, a ready row is in a pass at
// least every ⌈R/⌈3T/4⌉⌉ steps; the oldest filling prompt gets min(its rest, its
// chunk, T/4) tokens at every step; and requests join in order of admission, none
// overtaking another that could join but for memory. The oldest running request is
// never preempted for another and never blocked, so that every request ends if the
// readers of those before it go on. A request whose reader takes nothing keeps its
// cache and its place among Config.Running: Park it to let others have both.
package scheduler
