// The policy's search over a graph of productions: attempts with noise on the network's scores, each polished by
// exchanging single productions, and put in an order; and what each production costs with all it needs.
// No libraries and no globals that change, so that the IR made of it (by make.py) runs on any machine.
#include <stdint.h>

typedef const int32_t *Numbers;

typedef struct {  // as in flat.py: lists of lists are all their numbers, and where each list begins
  int64_t productions, items, needs, stores, required, accesses, edges;
  Numbers cost, gives, native, late, reads, several;   // of each production; `several`: does more than one statement
  Numbers asks_at, asks;        // needs of each production
  Numbers ways_at, ways;        // productions that meet each need
  Numbers meets_at, meets;      // needs that each production meets
  Numbers makers_at, makers;    // productions of each item
  Numbers wanted_at, wanted;    // items any of which meets each need …
  Numbers strict;               // … if an instruction or a load made it
  Numbers wide;                 // whether each need is for a vector
  Numbers must;                 // needs that the region itself has
  Numbers store_at, store;      // productions that do each store
  Numbers writes_at, writes;    // stores that each production does
  Numbers touches_at, touches;  // accesses to memory that each production does
  Numbers before_at, before;    // accesses that must come before each access
  const float *score, *noise;
  int32_t *room;                // as many zeros as flat.py counts
} Graph;

typedef struct {
  int64_t attempts, work, noises;
  float spread[4], keep;
} Effort;

typedef struct {
  const Graph *g;
  int32_t *has, *kept, *met, *asked, *list, *trial, *rough, *best, *in_best, *stack, *queue, *later, *banned, *readers;
  int32_t *worth, *wait, *out, *previous, *stored, *head;  // by production, need, store or access
  int32_t *to, *next, *who, *beside;                       // by edge
  int32_t mark;
  int64_t work;
  float spread, bonus;
  const float *noise;
} Search;

enum { PASSES = 3, REPAIRS = 6, DEPTH = 60, SWEEPS = 64, SEEN = 1024 };

// What each production costs with all it needs, where what several read is shared between them: sweeps to and fro until
// nothing gets cheaper.
void estimates(const Graph *g, float *found, float *any, float *native, float *share) {
  const float nothing = 1e9f;
  for (int64_t i = 0; i < g->items; i++) { any[i] = native[i] = nothing; share[i] = 0; }
  for (int64_t n = 0; n < g->productions; n++) {
    found[n] = nothing;
    if (g->reads[n])
      for (int32_t a = g->asks_at[n]; a < g->asks_at[n + 1]; a++)
        for (int32_t w = g->wanted_at[g->asks[a]]; w < g->wanted_at[g->asks[a] + 1]; w++) share[g->wanted[w]] += 1;
  }
  for (int64_t i = 0; i < g->items; i++) {
    float s = (share[i] < 3 ? share[i] : 3) * 0.75f;
    share[i] = s < 1 ? 1 : s;
  }
  for (int sweep = 0, changed = 1; sweep < SWEEPS && changed; sweep++) {
    changed = 0;
    for (int64_t k = 0; k < g->productions; k++) {
      int64_t n = sweep & 1 ? k : g->productions - 1 - k;
      float total = (float)g->cost[n];
      for (int32_t a = g->asks_at[n]; !g->late[n] && a < g->asks_at[n + 1]; a++) {
        int32_t need = g->asks[a];
        const float *price = g->strict[need] ? native : any;
        float least = nothing;
        for (int32_t w = g->wanted_at[need]; w < g->wanted_at[need + 1]; w++)
          if (price[g->wanted[w]] < least) least = price[g->wanted[w]];
        total += least;
      }
      if (total >= nothing || total >= found[n] - 1e-4f) continue;
      found[n] = total;
      changed = 1;
      int32_t item = g->gives[n];
      if (item < 0) continue;
      if (total / share[item] < any[item]) any[item] = total / share[item];
      if (g->native[n] && total / share[item] < native[item]) native[item] = total / share[item];
    }
  }
}

static int64_t price(const Graph *g, Numbers list, int64_t count) {
  int64_t total = 0;
  for (int64_t k = 0; k < count; k++) total += g->cost[list[k]];
  return total;
}

static int stores(const Graph *g, int32_t n) { return g->writes_at[n + 1] > g->writes_at[n]; }

// Of the productions marked in `has` those that something asks for, from the stores upwards; -1 if something lacks.
static int64_t keep(Search *s, Numbers list, int64_t count, int32_t *out) {
  const Graph *g = s->g;
  int32_t mark = ++s->mark;
  int64_t made = 0, depth = 0, open = 0;
  for (int64_t k = 0; k < count; k++)
    if (s->has[list[k]] && stores(g, list[k])) s->stack[depth++] = list[k];
  for (int64_t k = 0; k < g->required; k++) s->queue[open++] = g->must[k];
  while (depth || open) {
    if (depth) {
      int32_t n = s->stack[--depth];
      if (s->kept[n] == mark) continue;
      s->kept[n] = mark;
      out[made++] = n;
      for (int32_t a = g->meets_at[n]; a < g->meets_at[n + 1]; a++) s->met[g->meets[a]] = mark;
      for (int32_t a = g->asks_at[n]; a < g->asks_at[n + 1]; a++)
        if (s->met[g->asks[a]] != mark && s->asked[g->asks[a]] != mark) {
          s->asked[g->asks[a]] = mark;
          s->queue[open++] = g->asks[a];
        }
      continue;
    }
    int32_t need = s->queue[--open];
    if (s->met[need] == mark) continue;
    int32_t w = g->ways_at[need], end = g->ways_at[need + 1];
    while (w < end && !s->has[g->ways[w]]) w++;
    if (w == end) return -1;
    s->stack[depth++] = g->ways[w];
  }
  s->work += made;
  return made;
}

// Everything that is asked for gets the production that looks best: stores, then vectors, then scalars.
static int64_t roll(Search *s) {
  const Graph *g = s->g;
  int32_t mark = ++s->mark;
  int64_t count = 0, open = 0, done = 0, others = 0, seen = 0;
  for (int64_t k = 0; k < g->required; k++) {
    int32_t need = g->must[k];
    s->asked[need] = mark;
    if (g->wide[need]) s->queue[open++] = need;
    else s->later[others++] = need;
  }
  for (int64_t i = 0; i < g->stores || done < open || seen < others;) {
    Numbers ways;
    int32_t length, need = -1;
    if (i < g->stores) {
      ways = g->store + g->store_at[i], length = g->store_at[i + 1] - g->store_at[i];
      if (s->stored[i++] == mark) continue;
    } else {
      need = done < open ? s->queue[done++] : s->later[seen++];
      if (s->met[need] == mark) continue;
      ways = g->ways + g->ways_at[need], length = g->ways_at[need + 1] - g->ways_at[need];
    }
    int32_t most = -1;
    float highest = 0;
    for (int pass = 0; pass < 2 && most < 0; pass++)  // what is banned only where there is nothing else
      for (int32_t k = 0; k < length; k++) {
        int32_t n = ways[k];
        if (!pass && s->banned[n]) continue;
        int legal = 1;
        for (int32_t a = g->writes_at[n]; a < g->writes_at[n + 1]; a++) legal &= s->stored[g->writes[a]] != mark;
        if (!legal) continue;
        float value = g->score[n] + s->spread * s->noise[n] + (s->in_best[n] ? s->bonus : 0);
        if (most < 0 || value > highest) most = n, highest = value;
      }
    s->work += length;
    s->rough[count++] = most;
    for (int32_t a = g->writes_at[most]; a < g->writes_at[most + 1]; a++) s->stored[g->writes[a]] = mark;
    for (int32_t a = g->meets_at[most]; a < g->meets_at[most + 1]; a++) s->met[g->meets[a]] = mark;
    for (int32_t a = g->asks_at[most]; a < g->asks_at[most + 1]; a++) {
      int32_t asked = g->asks[a];
      if (s->met[asked] == mark || s->asked[asked] == mark) continue;
      s->asked[asked] = mark;
      if (g->wide[asked]) s->queue[open++] = asked;
      else s->later[others++] = asked;
    }
  }
  return count;
}

static void choose(Search *s, Numbers list, int64_t count, int32_t flag) {
  for (int64_t k = 0; k < count; k++) s->has[list[k]] = flag;
}

// What would go with each production: itself, and what nobody else reads, all the way up. Never too little.
static int32_t worth(Search *s, int32_t n, int depth) {
  const Graph *g = s->g;
  if (s->worth[n] >= 0) return s->worth[n];
  s->worth[n] = g->cost[n];  // ends what waits for itself
  if (depth >= DEPTH) return s->worth[n];
  int32_t total = g->cost[n];
  for (int32_t a = g->asks_at[n]; a < g->asks_at[n + 1]; a++)
    for (int32_t w = g->ways_at[g->asks[a]]; w < g->ways_at[g->asks[a] + 1]; w++)
      if (s->has[g->ways[w]] && s->readers[g->ways[w]] == 1) total += worth(s, g->ways[w], depth + 1);
  return s->worth[n] = total;
}

static void count_readers(Search *s, int64_t count) {
  const Graph *g = s->g;
  for (int64_t k = 0; k < count; k++) s->readers[s->list[k]] = 0, s->worth[s->list[k]] = -1;
  for (int64_t k = 0; k < count; k++)
    for (int32_t a = g->asks_at[s->list[k]]; a < g->asks_at[s->list[k] + 1]; a++)
      for (int32_t w = g->ways_at[g->asks[a]]; w < g->ways_at[g->asks[a] + 1]; w++)
        if (s->has[g->ways[w]]) s->readers[g->ways[w]]++;
  s->work += count;
}

static int there(Search *s, int32_t n) {  // whether all that it needs is chosen anyway
  const Graph *g = s->g;
  for (int32_t a = g->asks_at[n]; a < g->asks_at[n + 1]; a++) {
    int32_t w = g->ways_at[g->asks[a]], end = g->ways_at[g->asks[a] + 1];
    while (w < end && !s->has[g->ways[w]]) w++;
    if (w == end) return 0;
  }
  return 1;
}

// Exchange single productions of `list`, marked in `has`, while that helps.
static int64_t polish(Search *s, int64_t count) {
  const Graph *g = s->g;
  int64_t now = price(g, s->list, count);
  for (int pass = 0; pass < PASSES; pass++) {
    int64_t before = now, length = count;
    for (int64_t k = 0; k < count; k++) s->rough[k] = s->list[k];
    count_readers(s, count);
    for (int64_t k = 0; k < length; k++) {
      int32_t n = s->rough[k], item = g->gives[n], most, better = 0;
      if (item < 0 || !s->has[n] || g->makers_at[item + 1] - g->makers_at[item] < 2 || !(most = worth(s, n, 0))) continue;
      s->has[n] = 0;
      for (int32_t a = g->makers_at[item]; a < g->makers_at[item + 1] && !better; a++) {
        int32_t m = g->makers[a];
        s->work++;
        if (m == n || g->cost[m] >= most || s->has[m] || !there(s, m)) continue;
        s->has[m] = 1;
        s->list[count] = m;
        int64_t made = keep(s, s->list, count + 1, s->trial), total = made < 0 ? now : price(g, s->trial, made);
        s->has[m] = 0;
        if (total >= now) continue;
        choose(s, s->list, count, 0);
        for (int64_t j = 0; j < made; j++) s->list[j] = s->trial[j];
        count = made, now = total, better = 1;
        choose(s, s->list, count, 1);
        count_readers(s, count);
      }
      if (!better) s->has[n] = 1;
    }
    if (now == before) break;
  }
  return count;
}

// One production waits for another; 0 if there is no more room, which no code that was seen has needed.
static int follow(Search *s, int64_t *edges, int32_t a, int32_t b) {
  if (*edges >= s->g->edges) return 0;
  s->to[*edges] = b, s->next[*edges] = s->out[a], s->out[a] = (int32_t)*edges, s->wait[b]++;
  ++*edges;
  return 1;
}

// Those that wait for each other are not to be chosen together again: of them, what does several statements.
static void ban(Search *s, int64_t count) {
  int32_t first = -1;
  for (int64_t k = 0; k < count; k++) {
    int32_t a = s->list[k];
    if (!s->wait[a]) continue;
    first = a;
    for (int32_t e = s->out[a]; e >= 0; e = s->next[e])
      if (s->wait[s->to[e]]) s->previous[s->to[e]] = a;
  }
  for (int64_t k = 0; k < count; k++) first = s->previous[first];  // on the cycle by now
  int32_t n = first, wide = 0;
  do wide |= s->g->several[n], n = s->previous[n]; while (n != first);
  do s->banned[n] |= s->g->several[n] || !wide, n = s->previous[n]; while (n != first);
}

// Whether the productions of `list` can be put in an order.
static int ordered(Search *s, int64_t count) {
  const Graph *g = s->g;
  int64_t edges = 0, ready = 0, touched = 0, done = 0;
  for (int64_t k = 0; k < count; k++) s->wait[s->list[k]] = 0, s->out[s->list[k]] = -1;
  for (int64_t m = 0; m < g->accesses; m++) s->head[m] = -1;
  for (int64_t k = 0; k < count; k++) {
    int32_t n = s->list[k];
    for (int32_t a = g->asks_at[n]; !g->late[n] && a < g->asks_at[n + 1]; a++) {
      int32_t w = g->ways_at[g->asks[a]];
      while (!s->has[g->ways[w]]) w++;
      if (!follow(s, &edges, g->ways[w], n)) return 0;
    }
    for (int32_t a = g->touches_at[n]; a < g->touches_at[n + 1]; a++, touched++) {
      if (touched >= g->edges) return 0;
      s->who[touched] = n, s->beside[touched] = s->head[g->touches[a]], s->head[g->touches[a]] = (int32_t)touched;
    }
  }
  for (int64_t m = 0; m < g->accesses; m++)
    for (int32_t e = g->before_at[m]; e < g->before_at[m + 1]; e++)
      for (int32_t x = s->head[g->before[e]]; x >= 0; x = s->beside[x])
        for (int32_t y = s->head[m]; y >= 0; y = s->beside[y]) {
          if (s->who[x] == s->who[y]) return s->banned[s->who[x]] = 1, 0;
          if (!follow(s, &edges, s->who[x], s->who[y])) return 0;
        }
  for (int64_t k = 0; k < count; k++)
    if (!s->wait[s->list[k]]) s->stack[ready++] = s->list[k];
  for (; ready; done++)
    for (int32_t e = s->out[s->stack[--ready]]; e >= 0; e = s->next[e])
      if (!--s->wait[s->to[e]]) s->stack[ready++] = s->to[e];
  if (done < count) ban(s, count);
  return done == count;
}

typedef struct {  // what an attempt came to that found nothing better: again it would find the same
  uint64_t key;
  int64_t price, kept, polished;  // before it was polished; the work of both
} Seen;

static uint64_t key_of(Numbers list, int64_t count) {
  uint64_t key = 1;
  for (int64_t k = 0; k < count; k++) key = (key ^ (uint64_t)list[k]) * 0x9E3779B97F4A7C15u, key ^= key >> 29;
  return key | 1;
}

// The cheapest choice that some attempts find, and what it costs. `best` is one to begin with, which can be ordered.
int64_t search(const Graph *g, const Effort *effort, int32_t *best, int64_t *length) {
  int64_t p = g->productions, d = g->needs, big = p + d + g->items + g->accesses + 1, e = g->edges;
  int32_t *room = g->room;
  Search s = {.g = g, .best = best, .mark = 0};
  int32_t **own[] = {&s.has, &s.kept, &s.met, &s.asked, &s.list, &s.trial, &s.rough, &s.in_best, &s.stack, &s.queue,
                     &s.later, &s.banned, &s.readers, &s.worth, &s.wait, &s.out, &s.previous, &s.stored, &s.head};
  for (uint64_t k = 0; k < sizeof own / sizeof *own; k++, room += big) *own[k] = room;
  int32_t **each[] = {&s.to, &s.next, &s.who, &s.beside};
  for (uint64_t k = 0; k < sizeof each / sizeof *each; k++, room += e) *each[k] = room;
  int64_t lowest = price(g, best, *length);
  Seen seen[SEEN] = {};
  for (int64_t k = 0; k < *length; k++) s.in_best[best[k]] = 1;
  for (int64_t attempt = 0; attempt < effort->attempts && s.work < effort->work; attempt++) {
    for (int64_t n = 0; n < p; n++) s.banned[n] = 0;
    s.spread = attempt ? effort->spread[attempt & 3] : 0;
    s.bonus = attempt & 1 ? effort->keep : 0;  // every other attempt stays near the best
    s.noise = g->noise + attempt * 40503 % effort->noises;
    for (int repair = 0; repair < REPAIRS; repair++) {
      int64_t count = roll(&s), began = s.work;
      uint64_t key = key_of(s.rough, count);
      Seen *known = &seen[key % SEEN];
      if (known->key == key) {
        s.work += known->kept + (5 * known->price > 8 * lowest ? 0 : known->polished);
        break;
      }
      choose(&s, s.rough, count, 1);
      int64_t made = keep(&s, s.rough, count, s.list);
      choose(&s, s.rough, count, 0);
      int64_t rough = made < 0 ? 0 : price(g, s.list, made), kept = s.work - began, total = rough;
      int fits = 0;
      if (made >= 0 && 5 * rough <= 8 * lowest) {  // else no polish makes good for that
        choose(&s, s.list, made, 1);
        made = polish(&s, made);
        total = price(g, s.list, made);
        fits = total < lowest ? ordered(&s, made) : 0;
        choose(&s, s.list, made, 0);
        if (!fits && total < lowest) continue;
      }
      *known = (Seen){key, rough, kept, s.work - began - kept};
      if (fits) {
        for (int64_t k = 0; k < *length; k++) s.in_best[best[k]] = 0;
        for (int64_t k = 0; k < made; k++) best[k] = s.list[k], s.in_best[best[k]] = 1;
        *length = made, lowest = total;
      }
      break;
    }
  }
  return lowest;
}
