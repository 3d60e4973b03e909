// A Vulkan layer for tests: all devices of a process together have as many MiB of memory as the file LIMIT_FILE says, beyond which
// vkAllocateMemory refuses as a GPU does (VK_ERROR_OUT_OF_DEVICE_MEMORY); 0: as many as they want. The file is read at each allocation, so
// that memory can run out while a model answers. Only what it needs of Vulkan's headers, which test machines do not have, is declared here.

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*Function)(void);
typedef Function (*GetProc)(void *, const char *);
typedef struct Link {
  struct Link *next;
  GetProc instanceProc;
  GetProc deviceProc;  // of an instance: of physical devices
} Link;
/** VkLayerInstanceCreateInfo and VkLayerDeviceCreateInfo. */
typedef struct Chain {
  int type;
  struct Chain *next;
  int function;
  Link *link;
} Chain;
typedef struct {
  int type;
  void *next;
  uint64_t bytes;
  uint32_t memoryType;
} AllocateInfo;
typedef struct {
  int type;
  void *next;
  uint32_t version;
  GetProc instanceProc, deviceProc, physicalProc;
} Negotiation;

enum { OUT_OF_DEVICE_MEMORY = -2, INITIALIZATION_FAILED = -3, LOADER_INSTANCE = 47, LOADER_DEVICE = 48 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/** What the next layer or driver does, by the dispatch table of an instance or a device. */
typedef struct {
  void *key;
  GetProc proc;
} Below;
static Below belows[256];
static int belowCount;

static struct {
  uint64_t memory, bytes;
} held[16384];
static int heldCount;
static uint64_t total;

static GetProc below(void *of) {
  void *key = *(void **)of;
  GetProc found = NULL;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < belowCount; i++)
    if (belows[i].key == key) found = belows[i].proc;
  pthread_mutex_unlock(&lock);
  return found;
}

static void remember(void *of, GetProc proc) {
  pthread_mutex_lock(&lock);
  int at = 0;
  while (at < belowCount && belows[at].key != *(void **)of) at++;
  if (at == 256) abort();
  belows[at] = (Below){*(void **)of, proc};
  if (at == belowCount) belowCount++;
  pthread_mutex_unlock(&lock);
}

static uint64_t limit(void) {
  const char *path = getenv("LIMIT_FILE");
  double mib = 0;
  FILE *file = path ? fopen(path, "r") : NULL;
  if (file) {
    if (fscanf(file, "%lf", &mib) != 1) mib = 0;
    fclose(file);
  }
  return (uint64_t)(mib * 1048576);
}

static int allocateMemory(void *device, const AllocateInfo *info, const void *callbacks, uint64_t *memory) {
  uint64_t most = limit();
  pthread_mutex_lock(&lock);
  int refuses = most > 0 && total + info->bytes > most;
  if (!refuses) total += info->bytes;
  pthread_mutex_unlock(&lock);
  if (refuses) return OUT_OF_DEVICE_MEMORY;
  int result = ((int (*)(void *, const AllocateInfo *, const void *, uint64_t *))below(device)(device, "vkAllocateMemory"))(device, info, callbacks, memory);
  pthread_mutex_lock(&lock);
  if (result != 0) total -= info->bytes;
  else {
    if (heldCount == 16384) abort();
    held[heldCount].memory = *memory;
    held[heldCount++].bytes = info->bytes;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

static void freeMemory(void *device, uint64_t memory, const void *callbacks) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < heldCount; i++) {
    if (held[i].memory != memory) continue;
    total -= held[i].bytes;
    held[i] = held[--heldCount];
    break;
  }
  pthread_mutex_unlock(&lock);
  ((void (*)(void *, uint64_t, const void *))below(device)(device, "vkFreeMemory"))(device, memory, callbacks);
}

static Chain *chainOf(const void *info, int type) {
  Chain *chain = ((Chain *)info)->next;
  while (chain && !(chain->type == type && chain->function == 0)) chain = chain->next;
  return chain;
}

static int createInstance(const void *info, const void *callbacks, void **instance) {
  Chain *chain = chainOf(info, LOADER_INSTANCE);
  if (!chain) return INITIALIZATION_FAILED;
  GetProc proc = chain->link->instanceProc;
  chain->link = chain->link->next;
  int result = ((int (*)(const void *, const void *, void **))proc(NULL, "vkCreateInstance"))(info, callbacks, instance);
  if (result == 0) remember(*instance, proc);
  return result;
}

static int createDevice(void *physical, const void *info, const void *callbacks, void **device) {
  Chain *chain = chainOf(info, LOADER_DEVICE);
  if (!chain) return INITIALIZATION_FAILED;
  GetProc instanceProc = chain->link->instanceProc, deviceProc = chain->link->deviceProc;
  chain->link = chain->link->next;
  Function create = instanceProc(NULL, "vkCreateDevice");
  if (!create) create = below(physical)(NULL, "vkCreateDevice");
  int result = ((int (*)(void *, const void *, const void *, void **))create)(physical, info, callbacks, device);
  if (result == 0) remember(*device, deviceProc);
  return result;
}

static Function deviceProc(void *device, const char *name);
static Function instanceProc(void *instance, const char *name);

static Function own(const char *name) {
  if (!strcmp(name, "vkAllocateMemory")) return (Function)allocateMemory;
  if (!strcmp(name, "vkFreeMemory")) return (Function)freeMemory;
  if (!strcmp(name, "vkGetDeviceProcAddr")) return (Function)deviceProc;
  if (!strcmp(name, "vkGetInstanceProcAddr")) return (Function)instanceProc;
  if (!strcmp(name, "vkCreateInstance")) return (Function)createInstance;
  if (!strcmp(name, "vkCreateDevice")) return (Function)createDevice;
  return NULL;
}

static Function deviceProc(void *device, const char *name) {
  Function found = own(name);
  return found ? found : below(device)(device, name);
}

static Function instanceProc(void *instance, const char *name) {
  Function found = own(name);
  return found ? found : instance ? below(instance)(instance, name) : NULL;
}

int vkNegotiateLoaderLayerInterfaceVersion(Negotiation *wanted) {
  if (wanted->version > 2) wanted->version = 2;
  wanted->instanceProc = instanceProc;
  wanted->deviceProc = deviceProc;
  wanted->physicalProc = NULL;
  return 0;
}
