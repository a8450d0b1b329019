/** The public API, by name. */
export type { Backoff, BackoffOptions } from './job/backoff.ts'
export type { Duration } from './job/duration.ts'
export type { ChangeOptions, JobOptions } from './job/enqueue-options.ts'
export { type ErrorCode, LongshoreError, NonRetryableError } from './job/errors.ts'
export type {
  Explanation,
  Lacking,
  NamedJob,
  NamedWorker,
  Reason,
  SlotHolder,
} from './job/explanation.ts'
export type {
  FinishedGroup,
  FinishedGroupState,
  GroupEvent,
  GroupRef,
  GroupState,
  GroupStatus,
  StuckReport,
} from './job/group.ts'
export type { EdgePolicy } from './job/group-graph.ts'
export type {
  FinishedJob,
  FinishedState,
  Job,
  JobFacts,
  JobRef,
  JobState,
  StoredCause,
  StoredError,
  UnfinishedState,
} from './job/job.ts'
export { type JobId, newJobId } from './job/job-id.ts'
export type { DropReason, JobLog, LogCounts, LogLevel, LogLine, Progress } from './job/job-log.ts'
export type { Queryable, Transaction } from './job/queryable.ts'
export {
  defineTask,
  type Handler,
  type HandlerFunction,
  type JobContext,
  type ParentJob,
  type Parents,
  type RunningJob,
  type Task,
  type TaskOptions,
  type ThreadContext,
  type ThreadHandler,
  type ThreadOptions,
} from './job/task.ts'
export type { Violation } from './postgres/audit.ts'
export type { CancelAnswer } from './postgres/cancel-jobs.ts'
export type { ChangeAnswer } from './postgres/change-job.ts'
export type { CancelGroupAnswer, ResumeWorkflowAnswer } from './postgres/groups.ts'
export { readMaxQueues, type SetMaxQueuesOptions, setMaxQueues } from './postgres/max-queues.ts'
export { type MigrateOptions, type MigrationStep, migrate } from './postgres/migrate.ts'
export type { DeploymentOptions } from './postgres/once.ts'
export type { PostgresConfig, PostgresSettings } from './postgres/postgres-config.ts'
export { readPropertyKeys, type SetPropertyKeysOptions, setPropertyKeys } from './postgres/property-keys.ts'
export { type Queue, readQueues, type SetQueueOptions, setQueue } from './postgres/queue-settings.ts'
export type { TableSize } from './postgres/read-health.ts'
export type { QueueSettings } from './postgres/relay-reads.ts'
export {
  readWatchdog,
  type SetWatchdogOptions,
  setWatchdog,
  type WatchdogSettings,
} from './postgres/watchdog-settings.ts'
export { createProducer } from './producer/create-producer.ts'
export type { FollowOptions, LogPageOptions } from './producer/follow-logs.ts'
export type { GroupBuilder, GroupJob, GroupJobOptions, Parent } from './producer/group-builder.ts'
export type { EachJobOptions, EnqueueManyOptions } from './producer/many-jobs.ts'
export type { EnqueueOptions, GroupOptions, Producer } from './producer/producer.ts'
export type { ProducerOptions } from './producer/producer-options.ts'
export type { InTransaction } from './producer/transaction.ts'
export type { WaitOptions } from './producer/waiter.ts'
export type { RedisConfig } from './redis/redis-config.ts'
export { type AuditOptions, audit } from './relay/audit.ts'
export { createRelay, type Relay, type RelayOptions } from './relay/create-relay.ts'
export { type DoctorFinding, type DoctorOptions, type DoctorReport, doctor } from './relay/doctor.ts'
export type { RelayHealth } from './relay/relay-health.ts'
export type { RelayMetrics } from './relay/relay-loop.ts'
export type { ScheduleSettings } from './runtime/config.ts'
export type { Health } from './runtime/health.ts'
export type { Logger } from './runtime/logger.ts'
export type { Exposition } from './runtime/prometheus.ts'
export type { BalanceStrategy, ScheduleMode } from './runtime/settings.ts'
export { createWorker, type StopOptions, type Worker } from './worker/create-worker.ts'
export type { WorkerHealth } from './worker/worker-health.ts'
export type { WorkerOptions } from './worker/worker-options.ts'
