import com.github.kagkarlsson.scheduler.Scheduler;
import com.github.kagkarlsson.scheduler.SchedulerBuilder;
import com.github.kagkarlsson.scheduler.SchedulerName;
import com.github.kagkarlsson.scheduler.task.helper.OneTimeTask;
import com.github.kagkarlsson.scheduler.task.helper.RecurringTask;
import com.github.kagkarlsson.scheduler.task.helper.Tasks;
import com.github.kagkarlsson.scheduler.task.schedule.Schedules;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.Semaphore;

/** db-scheduler: recurring tasks */
public class DbScheduler implements Replica.Tool {
    /** How many tasks are there at a time while the rate is measured */
    private static final Semaphore ROOM = new Semaphore(10);
    private static final String TABLE = """
            CREATE TABLE scheduled_tasks (
                task_name text NOT NULL, task_instance text NOT NULL, task_data bytea,
                execution_time timestamptz NOT NULL, picked boolean NOT NULL, picked_by text,
                last_success timestamptz, last_failure timestamptz, consecutive_failures int,
                last_heartbeat timestamptz, version bigint NOT NULL, priority smallint,
                PRIMARY KEY (task_name, task_instance));
            CREATE INDEX ON scheduled_tasks (execution_time);
            CREATE INDEX ON scheduled_tasks (last_heartbeat);
            CREATE INDEX ON scheduled_tasks (priority DESC, execution_time)""";

    @Override
    public void run() throws Exception {
        if (Replica.number.equals("0")) {
            try (var connection = Replica.connect()) {
                connection.createStatement().execute(TABLE);
            }
        }
        List<RecurringTask<Void>> tasks = Replica.NAMES.stream()
                .map(name -> Tasks.recurring(name, Schedules.cron(Replica.cron(), ZoneId.of(Replica.ZONE)))
                        // By default it is due now, and the work does not learn which run it repeats.
                        .onDeadExecution((dead, operations) ->
                                operations.reschedule(dead, dead.getExecution().executionTime))
                        .execute((instance, context) ->
                                Replica.work(seconds(context.getExecution().executionTime))))
                .toList();
        OneTimeTask<Void> nothing = Tasks.oneTime("nothing").execute((instance, context) -> ROOM.release());
        SchedulerBuilder builder = Scheduler.create(Replica.pool(), nothing)
                .heartbeatInterval(Duration.ofSeconds(Long.parseLong(System.getenv("HEARTBEAT"))))
                // Its default is the name of the host.  Here each process stands for a host.
                .schedulerName(new SchedulerName.Fixed(Replica.number));
        if (Replica.RATE) {
            builder.enableImmediateExecution();
        } else {
            builder.startTasks(tasks);
            if (Replica.CRON.isEmpty()) {
                // Its documentation says that this interval is the precision; by default it is 10 s.
                builder.pollingInterval(Duration.ofMillis(500));
            }
        }
        Scheduler scheduler = builder.build();
        Replica.awaitStart();
        scheduler.start();
        if (Replica.RATE) {
            Replica.rate(() -> {
                ROOM.acquire();
                scheduler.schedule(nothing.instance(UUID.randomUUID().toString()), Instant.now());
                return 1;
            });
        }
    }

    private static String seconds(Instant time) {
        return time.getEpochSecond() + "." + String.format("%03d", time.getNano() / 1_000_000);
    }
}
