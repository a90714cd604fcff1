/* The check of a plan: registers of the warpgroups and the map of shared memory. */
#include "plan_check.h"

static bool fault(const decode_plan *p, gen_error *err, const char *where, const char *what)
{
    char spec[CONFIG_SPEC_MAX];
    config_format(&p->cfg, spec);
    return gen_fail(err, "the plan of %s is wrong: %s %s; this is a fault of the generator, please report the spec", spec, where, what);
}

/* What setmaxnreg takes. */
static bool is_register_number(int n) { return n >= 24 && n <= 256 && n % 8 == 0; }

/* Registers are handed out once, at entry; setmaxnreg moves them between warpgroups and waits until there are enough. */
static bool check_registers(const decode_plan *p, gen_error *err)
{
    int64_t given = (int64_t)p->entry_registers * (p->consumers + 1);
    int64_t wanted = (int64_t)p->consumers * p->consumer_registers + p->producer_registers;
    if (p->consumers < 1 || p->threads != (p->consumers + 1) * 128 || p->threads > 1024)
        return fault(p, err, "its threads", "are not those of its consumers and one producer");
    if (!is_register_number(p->entry_registers) || !is_register_number(p->producer_registers) || !is_register_number(p->consumer_registers))
        return fault(p, err, "a thread's registers", "are no multiple of 8 from 24 to 256");
    if (p->producer_registers > p->entry_registers || p->consumer_registers < p->entry_registers)
        return fault(p, err, "registers", "go from a consumer to the producer");
    if ((int64_t)p->entry_registers * p->threads > p->cfg.target->registers)
        return fault(p, err, "a block", "starts with more registers than the target has");
    if (wanted > given) return fault(p, err, "a block", "asks for more registers than it starts with and would hang");
    return true;
}

static bool check_shared(const decode_plan *p, gen_error *err)
{
    uint64_t end = 0;
    if (p->cfg.target->shared_bytes < 0 || p->shared_bytes > (uint32_t)p->cfg.target->shared_bytes)
        return fault(p, err, "a block", "takes more shared memory than the target has");
    for (int i = 0; i < SHARED_REGIONS; i++) {
        const shared_region *r = &p->shared[i];
        if (r->name == NULL) return fault(p, err, "an area of shared memory", "is missing");
        if (r->align == 0 || (r->align & (r->align - 1)) || r->offset % r->align) return fault(p, err, r->name, "is not aligned in shared memory");
        if (r->offset < end) return fault(p, err, r->name, "overlaps the area before it in shared memory");
        end = (uint64_t)r->offset + r->bytes;
        if (end > p->shared_bytes) return fault(p, err, r->name, "ends behind the block's shared memory");
    }
    return true;
}

bool decode_plan_check(const decode_plan *plan, gen_error *err) { return check_registers(plan, err) && check_shared(plan, err); }
