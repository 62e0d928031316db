import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.TimeZone;
import java.util.concurrent.Semaphore;
import org.quartz.CronScheduleBuilder;
import org.quartz.DisallowConcurrentExecution;
import org.quartz.Job;
import org.quartz.JobBuilder;
import org.quartz.JobDetail;
import org.quartz.JobExecutionContext;
import org.quartz.ObjectAlreadyExistsException;
import org.quartz.Scheduler;
import org.quartz.SchedulerException;
import org.quartz.TriggerBuilder;
import org.quartz.impl.StdSchedulerFactory;
import org.quartz.impl.jdbcjobstore.JobStoreTX;

/** Quartz: a cluster with a JDBC job store */
public class Quartz implements Replica.Tool {
    /** How many jobs are there at a time while the rate is measured */
    private static final Semaphore ROOM = new Semaphore(10);

    @Override
    public void run() throws Exception {
        if (Replica.number.equals("0")) {
            try (var connection = Replica.connect();
                    var tables = JobStoreTX.class.getResourceAsStream("tables_postgres.sql")) {
                connection.createStatement().execute(new String(tables.readAllBytes(), StandardCharsets.UTF_8));
            }
        }
        Scheduler scheduler = new StdSchedulerFactory(properties()).getScheduler();
        for (String name : Replica.NAMES) {
            scheduler.addJob(job(name), true);
        }
        Replica.awaitStart();
        if (!Replica.RATE) {
            for (String name : Replica.NAMES) {
                schedule(scheduler, name);
            }
        }
        scheduler.start();
        if (Replica.RATE) {
            Replica.rate(() -> {
                ROOM.acquire();
                scheduler.scheduleJob(
                        JobBuilder.newJob(Nothing.class).build(), TriggerBuilder.newTrigger().startNow().build());
                return 1;
            });
        }
    }

    private static Properties properties() {
        Properties properties = new Properties();
        properties.put("org.quartz.scheduler.instanceName", Replica.GROUP);
        properties.put("org.quartz.scheduler.instanceId", "AUTO");
        properties.put("org.quartz.threadPool.class", "org.quartz.simpl.SimpleThreadPool");
        properties.put("org.quartz.threadPool.threadCount", "10");
        properties.put("org.quartz.jobStore.class", JobStoreTX.class.getName());
        properties.put("org.quartz.jobStore.driverDelegateClass", "org.quartz.impl.jdbcjobstore.PostgreSQLDelegate");
        properties.put("org.quartz.jobStore.dataSource", "peer");
        properties.put("org.quartz.jobStore.isClustered", "true");
        properties.put("org.quartz.jobStore.clusterCheckinInterval", System.getenv("CHECK_IN"));
        properties.put("org.quartz.dataSource.peer.provider", "hikaricp");
        properties.put("org.quartz.dataSource.peer.driver", "org.postgresql.Driver");
        properties.put("org.quartz.dataSource.peer.URL", Replica.URL);
        properties.put("org.quartz.dataSource.peer.user", "postgres");
        properties.put("org.quartz.dataSource.peer.password", "");
        return properties;
    }

    private static JobDetail job(String name) {
        return JobBuilder.newJob(Work.class).withIdentity(name).storeDurably().requestRecovery().build();
    }

    /** Schedules a job, unless another replica has done that. */
    private static void schedule(Scheduler scheduler, String name) throws SchedulerException {
        // One of the two fields for days has to be a question mark.
        String cron = Replica.cron().replaceFirst("\\*$", "?");
        try {
            scheduler.scheduleJob(TriggerBuilder.newTrigger().withIdentity(name).forJob(name)
                    .withSchedule(CronScheduleBuilder.cronSchedule(cron).inTimeZone(TimeZone.getTimeZone(Replica.ZONE)))
                    .build());
        } catch (ObjectAlreadyExistsException exists) {
            // as it should be
        }
    }

    @DisallowConcurrentExecution
    public static class Work implements Job {
        @Override
        public void execute(JobExecutionContext context) {
            long due = context.isRecovering()
                    ? Long.parseLong(context.getMergedJobDataMap().getString(
                            Scheduler.FAILED_JOB_ORIGINAL_TRIGGER_SCHEDULED_FIRETIME_IN_MILLISECONDS))
                    : context.getScheduledFireTime().getTime();
            Replica.work(due / 1000);
        }
    }

    public static class Nothing implements Job {
        @Override
        public void execute(JobExecutionContext context) {
            ROOM.release();
        }
    }
}
