/* Hides instruction sets from a process and its children, as if the processor had AVX2 and nothing newer.

   Linux can make the instruction CPUID fault (arch_prctl(2), ARCH_SET_CPUID). The fault is answered here with what
   the processor says, less the bits of what is hidden. /proc/cpuinfo, which libraries read too, is replaced by the file
   that HIDE_CPUINFO names. Loaded with LD_PRELOAD; where the kernel or the processor cannot do this, the process ends
   with exit status 96. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define BIT(n) (1u << (n))

typedef int (*sigaction_type)(int, const struct sigaction *, struct sigaction *);

/* What the process itself does at a segmentation fault: faulthandler and compilers have handlers of their own. */
static struct sigaction theirs;

static int set_action(int number, const struct sigaction *new, struct sigaction *old)
{
    static sigaction_type original;
    if (!original)
        original = (sigaction_type)dlsym(RTLD_NEXT, "sigaction");
    return original(number, new, old);
}

static long allow_cpuid(long yes)
{
    return syscall(SYS_arch_prctl, ARCH_SET_CPUID, yes);
}

/* Leaf 7 of CPUID, Intel SDM volume 2A, table 3-8: AVX-512 with its extensions, AMX, and the VEX forms of VNNI. */
static void hide(uint32_t leaf, uint32_t part, uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d)
{
    if (leaf != 7)
        return;
    if (part == 0) {
        *b &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31));
        *c &= ~(BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14));
        *d &= ~(BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25));
    } else if (part == 1) {
        *a &= ~(BIT(4) | BIT(5) | BIT(21) | BIT(23));
        *d &= ~(BIT(4) | BIT(5) | BIT(8) | BIT(10) | BIT(19));
    }
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *code = (const uint8_t *)registers[REG_RIP];
    if (info->si_code == SI_KERNEL && code[0] == 0x0f && code[1] == 0xa2) {
        uint32_t leaf = registers[REG_RAX], part = registers[REG_RCX], a, b, c, d;
        allow_cpuid(1);
        __asm__ volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(leaf), "c"(part));
        allow_cpuid(0);
        hide(leaf, part, &a, &b, &c, &d);
        registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
        registers[REG_RIP] += 2;
    } else if (theirs.sa_flags & SA_SIGINFO && theirs.sa_sigaction) {
        theirs.sa_sigaction(number, info, context);
    } else if (theirs.sa_handler != SIG_DFL && theirs.sa_handler != SIG_IGN) {
        theirs.sa_handler(number);
    } else {
        struct sigaction plain = {.sa_handler = SIG_DFL};
        set_action(SIGSEGV, &plain, NULL);
        if (info->si_code <= 0) /* sent by a process: it does not come again by itself */
            raise(SIGSEGV);
    }
}

__attribute__((constructor)) static void begin(void)
{
    struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    set_action(SIGSEGV, &ours, NULL);
    if (allow_cpuid(0))
        _exit(96);
}

int sigaction(int number, const struct sigaction *new, struct sigaction *old)
{
    if (number != SIGSEGV)
        return set_action(number, new, old);
    struct sigaction before = theirs;
    if (new)
        theirs = *new;
    if (old)
        *old = before;
    return 0;
}

sighandler_t signal(int number, sighandler_t handler)
{
    struct sigaction new = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    return sigaction(number, &new, &old) ? SIG_ERR : old.sa_handler;
}

static int opened(const char *path, int flags, mode_t mode)
{
    const char *instead = getenv("HIDE_CPUINFO");
    return openat(AT_FDCWD, instead && !strcmp(path, "/proc/cpuinfo") ? instead : path, flags, mode);
}

#define OPEN(name)                                      \
    int name(const char *path, int flags, ...)          \
    {                                                   \
        va_list rest;                                   \
        va_start(rest, flags);                          \
        mode_t mode = (mode_t)va_arg(rest, unsigned);   \
        va_end(rest);                                   \
        return opened(path, flags, mode);               \
    }

OPEN(open)
OPEN(open64)
